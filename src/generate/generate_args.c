/* The options of tessera-generate and tessera-chat. How tokens are chosen is said
 * in three places: the command line, the model's generation_config.json, and the
 * program (greedily, or as in a chat). An option takes the place of its own value
 * alone; only whether tokens are drawn at all follows from any of them, since
 * --top-p means nothing where the likeliest is taken. */
#include "src/generate/generate_args.h"

#include <assert.h>
#include <math.h>
#include <unistd.h>

/* Those that say how tokens are drawn, the first that none is. */
static const char *const drawing[] = {
    "greedy", "temperature",       "top-k", "top-p", "min-p",
    "seed",   "repetition-penalty"
};
enum { DRAWING = 5, SAMPLING = 7 };

const struct options_row generate_args_rows[] = {
    OPTION_TEXT(struct generate_args, prompt, "prompt", "TEXT",
                "what is continued"),
    OPTION_TEXT(struct generate_args, prompts, "prompts", "FILE",
                "a prompt on each line; of a .jsonl the texts 'prompt'"),
    OPTION_FLAG(struct generate_args, score, "score",
                "{\"tokens\": N, \"nll\": X} of a text: -log of the "
                "probability of all tokens but the first"),
    OPTION_FLAG(struct generate_args, chat, "chat",
                "prompts are messages of a user (chat template)"),
    OPTION_TEXT(struct generate_args, system, "system", "TEXT",
                "the system's message before them"),
    OPTION_WHOLE(struct generate_args, max_tokens, "max-tokens", "N", 1,
                 INT32_MAX,
                 "the most that are added (128; in a chat, what the context "
                 "has left)"),
    OPTION_WHOLE(struct generate_args, batch, "batch", "N", 1, 4096,
                 "prompts at a time (8); changes no text"),
    OPTION_FLAG(struct generate_args, json, "json", "of --prompt, too"),
    OPTION_FLAG(struct generate_args, sample.greedy, "greedy",
                "the most probable token, always"),
    OPTION_REAL(struct generate_args, sample.temperature, "temperature", "T",
                -INFINITY, INFINITY, "logits / T; 1: as the model has them"),
    OPTION_WHOLE(struct generate_args, sample.top_k, "top-k", "K", 0, INT32_MAX,
                 "only the K most probable tokens; 0: all"),
    OPTION_REAL(struct generate_args, sample.top_p, "top-p", "P", -INFINITY,
                INFINITY, "only the most probable ones with a share of P"),
    OPTION_REAL(struct generate_args, sample.min_p, "min-p", "P", -INFINITY,
                INFINITY, "only those with P of the largest probability"),
    OPTION_REAL(struct generate_args, sample.repetition_penalty,
                "repetition-penalty", "R", -INFINITY, INFINITY,
                "the scores of tokens that were there, / R"),
    OPTION_WHOLE(struct generate_args, sample.seed, "seed", "N", 0, INT64_MAX,
                 "of what is drawn (17)"),
    OPTION_TEXTS(struct generate_args, stop, "stop", "TEXT",
                 "ends the text before TEXT; up to 32 of them"),
    OPTION_CHOICE(struct generate_args, weights, "weights", infer_weights_names,
                  "how they are held (fp32)"),
    OPTION_CHOICE(struct generate_args, spread, "spread", spread_way_names,
                  "weights of several ranks once a node, or a part on each "
                  "(auto: node if it has room)"),
    OPTION_CHOICE(struct generate_args, backend, "backend", infer_backend_names,
                  "what computes (cpu)"),
    OPTION_WHOLE(struct generate_args, context, "context", "N", 2, INT32_MAX,
                 "tokens of prompt and answer together"),
    OPTION_WHOLE(struct generate_args, threads, "threads", "N", 1, INT32_MAX,
                 "(the processors that this process may use)"),
    OPTION_TEXT(struct generate_args, tokenizer, "tokenizer", "NAME",
                "a tokenizer.json, a tokenizer.model or bytes, not the "
                "model's own"),
    OPTION_TEXT(struct generate_args, chat_template, "chat-template", "NAME",
                "a file, chatml, llama3 or none, not the model's"),
    { 0 },
};

/* Was one of them given, from `first` on? */
static bool any_given(const struct generate_args *args, int first, int end)
{
    bool any = false;
    assert(first >= 0 && end <= SAMPLING);
    for (int i = first; i < end; i++)
        any = any || options_given(&args->options, drawing[i]);
    return any;
}

bool generate_args_samples(const struct generate_args *args)
{
    return any_given(args, 0, SAMPLING);
}

static enum err check_sample(const struct generate_args *args)
{
    struct sample_options sample;
    if (args->sample.greedy && any_given(args, 1, DRAWING + 1))
        return err_set(ERR_USAGE, "--greedy draws nothing: leave it out, or "
                                  "the other options of sampling");
    generate_args_sample(args, NULL, &sample_options_default, &sample);
    return err_prefix(sample_check(&sample), "options of sampling");
}

static enum err check_generate(const struct generate_args *args)
{
    int inputs = (args->prompt != NULL) + (args->prompts != NULL) + args->score;
    if (inputs > 1)
        return err_set(ERR_USAGE, "--prompt, --prompts and --score are for "
                                  "one of them at a time");
    if (args->score &&
        (args->chat || generate_args_samples(args) || args->batch > 0 ||
         args->max_tokens > 0 || args->stop[0] != NULL))
        return err_set(ERR_USAGE, "--score reads a text and generates none: "
                                  "of the options it takes --weights, "
                                  "--threads, --context and --tokenizer");
    if (!args->chat && (args->system != NULL || args->chat_template != NULL))
        return err_set(ERR_USAGE, "--system and --chat-template need --chat");
    if (args->batch > 1 && args->prompts == NULL)
        return err_set(ERR_USAGE, "--batch needs --prompts FILE");
    return ERR_OK;
}

/* What no row can say of itself: options that need or exclude each other, and a
 * limit that is the machine's. */
enum err generate_args_check(const struct options *options)
{
    struct generate_args *args = options->into;
    assert(options->operand_count == 1);
    long threads_max = 8 * sysconf(_SC_NPROCESSORS_ONLN);
    args->model = options->operands[0];
    args->options = *options;
    if (args->threads > threads_max)
        return err_set(ERR_USAGE,
                       "--threads takes a whole number from 1 to "
                       "%ld, not '%lld'",
                       threads_max, (long long)args->threads);
    TRY(check_sample(args));
    return args->talk ? ERR_OK : check_generate(args);
}

void generate_args_sample(const struct generate_args *args,
                          const struct sample_options *model,
                          const struct sample_options *otherwise,
                          struct sample_options *out)
{
    const struct sample_options *sample = &args->sample;
    const struct options *options = &args->options;
    *out = model != NULL ? *model : *otherwise;
    if (sample->greedy)
        out->greedy = true;
    else if (any_given(args, 1, DRAWING + 1))
        out->greedy = false;
    if (options_given(options, "temperature"))
        out->temperature = sample->temperature;
    if (options_given(options, "top-k"))
        out->top_k = sample->top_k;
    if (options_given(options, "top-p"))
        out->top_p = sample->top_p;
    if (options_given(options, "min-p"))
        out->min_p = sample->min_p;
    if (options_given(options, "repetition-penalty"))
        out->repetition_penalty = sample->repetition_penalty;
    if (options_given(options, "seed"))
        out->seed = sample->seed;
}
