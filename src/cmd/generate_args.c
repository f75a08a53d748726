/* The options of tessera-generate and tessera-chat. */
#include "src/cmd/generate_args.h"
#include "src/cmd/cmd_main.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char generate_args_usage[] =
    "  --greedy                the most probable token, always\n"
    "  --temperature T         logits / T; 1: as the model has them\n"
    "  --top-k K               only the K most probable tokens; 0: all\n"
    "  --top-p P               only the most probable ones with a share of P\n"
    "  --min-p P               only those with P of the largest probability\n"
    "  --repetition-penalty R  the scores of tokens that were there, / R\n"
    "  --seed N                of what is drawn (17)\n"
    "  --stop TEXT             ends the text before TEXT; up to 32 of them\n"
    "  --weights TYPE          fp32, bf16 or int8: how they are held (fp32)\n"
    "  --context N             tokens of prompt and answer together\n"
    "  --threads N             (the processors that this process may use)\n"
    "  --tokenizer NAME        a tokenizer.json or bytes, not the model's own\n"
    "  --chat-template NAME    a file, chatml, llama3 or none, not the "
    "model's\n";

enum {
    ARG_PROMPT = 1,
    ARG_PROMPTS,
    ARG_SYSTEM,
    ARG_CHAT,
    ARG_SCORE,
    ARG_JSON,
    ARG_GREEDY,
    ARG_TEMPERATURE,
    ARG_TOP_K,
    ARG_TOP_P,
    ARG_MIN_P,
    ARG_PENALTY,
    ARG_SEED,
    ARG_MAX_TOKENS,
    ARG_STOP,
    ARG_WEIGHTS,
    ARG_THREADS,
    ARG_BATCH,
    ARG_CONTEXT,
    ARG_TOKENIZER,
    ARG_CHAT_TEMPLATE
};

/* Those of tessera-chat first; tessera-generate has them all. */
#define ARG_OPTIONS_CHAT                                                       \
    { "system", required_argument, NULL, ARG_SYSTEM },                         \
        { "greedy", no_argument, NULL, ARG_GREEDY },                           \
        { "temperature", required_argument, NULL, ARG_TEMPERATURE },           \
        { "top-k", required_argument, NULL, ARG_TOP_K },                       \
        { "top-p", required_argument, NULL, ARG_TOP_P },                       \
        { "min-p", required_argument, NULL, ARG_MIN_P },                       \
        { "repetition-penalty", required_argument, NULL, ARG_PENALTY },        \
        { "seed", required_argument, NULL, ARG_SEED },                         \
        { "max-tokens", required_argument, NULL, ARG_MAX_TOKENS },             \
        { "stop", required_argument, NULL, ARG_STOP },                         \
        { "weights", required_argument, NULL, ARG_WEIGHTS },                   \
        { "threads", required_argument, NULL, ARG_THREADS },                   \
        { "context", required_argument, NULL, ARG_CONTEXT },                   \
        { "tokenizer", required_argument, NULL, ARG_TOKENIZER },               \
    {                                                                          \
        "chat-template", required_argument, NULL, ARG_CHAT_TEMPLATE            \
    }

static const struct option options_talk[] = { ARG_OPTIONS_CHAT,
                                              { NULL, 0, NULL, 0 } };
static const struct option options_generate[] = {
    ARG_OPTIONS_CHAT,
    { "prompt", required_argument, NULL, ARG_PROMPT },
    { "prompts", required_argument, NULL, ARG_PROMPTS },
    { "chat", no_argument, NULL, ARG_CHAT },
    { "score", no_argument, NULL, ARG_SCORE },
    { "json", no_argument, NULL, ARG_JSON },
    { "batch", required_argument, NULL, ARG_BATCH },
    { NULL, 0, NULL, 0 },
};

static enum err parse_int(const char *name, int64_t min, int64_t max,
                          int64_t *out)
{
    char *end = NULL;
    errno = 0;
    long long value = strtoll(optarg, &end, 10);
    if (end == optarg || *end != '\0' || errno != 0 || value < min ||
        value > max)
        return err_set(ERR_USAGE,
                       "--%s takes a whole number from %lld to %lld, not "
                       "'%.64s'",
                       name, (long long)min, (long long)max, optarg);
    *out = value;
    return ERR_OK;
}

/* Within what limits is sample_check()'s to say. */
static enum err parse_real(const char *name, double *out)
{
    char *end = NULL;
    *out = strtod(optarg, &end);
    return end != optarg && *end == '\0'
               ? ERR_OK
               : err_set(ERR_USAGE, "--%s takes a number, not '%.64s'", name,
                         optarg);
}

static enum err parse_weights(enum infer_weights *out)
{
    for (int w = 0; infer_weights_names[w] != NULL; w++)
        if (strcmp(optarg, infer_weights_names[w]) == 0) {
            *out = (enum infer_weights)w;
            return ERR_OK;
        }
    return err_set(ERR_USAGE, "--weights takes fp32, bf16 or int8, not '%.64s'",
                   optarg);
}

static enum err set_sample(struct generate_args *out, const char *name, int key)
{
    struct sample_options *sample = &out->sample;
    int64_t seed = 0;
    switch (key) {
    case ARG_GREEDY:
        out->said |= GENERATE_SAID_GREEDY;
        return ERR_OK;
    case ARG_TEMPERATURE:
        out->said |= GENERATE_SAID_TEMPERATURE;
        return parse_real(name, &sample->temperature);
    case ARG_TOP_K:
        out->said |= GENERATE_SAID_TOP_K;
        return parse_int(name, 0, INT32_MAX, &sample->top_k);
    case ARG_TOP_P:
        out->said |= GENERATE_SAID_TOP_P;
        return parse_real(name, &sample->top_p);
    case ARG_MIN_P:
        out->said |= GENERATE_SAID_MIN_P;
        return parse_real(name, &sample->min_p);
    case ARG_PENALTY:
        out->said |= GENERATE_SAID_PENALTY;
        return parse_real(name, &sample->repetition_penalty);
    default:
        out->said |= GENERATE_SAID_SEED;
        TRY(parse_int(name, 0, INT64_MAX, &seed));
        sample->seed = (uint64_t)seed;
        return ERR_OK;
    }
}

static enum err add_stop(struct generate_args *out)
{
    if (optarg[0] == '\0')
        return err_set(ERR_USAGE, "--stop takes a text that is not empty");
    if (out->stop_count == GENERATE_ARGS_STOP_MAX)
        return err_set(ERR_USAGE, "--stop can be given %d times",
                       GENERATE_ARGS_STOP_MAX);
    out->stop[out->stop_count++] = optarg;
    return ERR_OK;
}

static enum err set_option(struct generate_args *out, const char *name, int key)
{
    switch (key) {
    case ARG_PROMPT:
        out->prompt = optarg;
        return ERR_OK;
    case ARG_PROMPTS:
        out->prompts = optarg;
        return ERR_OK;
    case ARG_SYSTEM:
        out->system = optarg;
        return ERR_OK;
    case ARG_CHAT:
        out->chat = true;
        return ERR_OK;
    case ARG_SCORE:
        out->score = true;
        return ERR_OK;
    case ARG_JSON:
        out->json = true;
        return ERR_OK;
    case ARG_MAX_TOKENS:
        return parse_int(name, 1, INT32_MAX, &out->max_tokens);
    case ARG_STOP:
        return add_stop(out);
    case ARG_WEIGHTS:
        return parse_weights(&out->weights);
    case ARG_THREADS:
        return parse_int(name, 1, 8 * sysconf(_SC_NPROCESSORS_ONLN),
                         &out->threads);
    case ARG_BATCH:
        return parse_int(name, 1, 4096, &out->batch);
    case ARG_CONTEXT:
        return parse_int(name, 2, INT32_MAX, &out->context);
    case ARG_TOKENIZER:
        out->tokenizer = optarg;
        return ERR_OK;
    case ARG_CHAT_TEMPLATE:
        out->chat_template = optarg;
        return ERR_OK;
    default:
        return set_sample(out, name, key);
    }
}

static enum err check_sample(const struct generate_args *args)
{
    struct sample_options sample;
    const unsigned drawing =
        ~(unsigned)(GENERATE_SAID_GREEDY | GENERATE_SAID_PENALTY);
    if ((args->said & GENERATE_SAID_GREEDY) != 0 && (args->said & drawing) != 0)
        return err_set(ERR_USAGE, "--greedy draws nothing: leave it out, or "
                                  "the other options of sampling");
    generate_args_sample(args, NULL, &sample_options_default, &sample);
    enum err rc = sample_check(&sample);
    return rc == ERR_OK ? rc : err_prefix(rc, "options of sampling");
}

static enum err check_generate(const struct generate_args *args)
{
    int inputs = (args->prompt != NULL) + (args->prompts != NULL) + args->score;
    if (inputs == 0)
        return err_set(ERR_USAGE, "give one of --prompt TEXT, --prompts FILE "
                                  "and --score");
    if (inputs > 1)
        return err_set(ERR_USAGE, "--prompt, --prompts and --score are for "
                                  "one of them at a time");
    if (args->score && (args->chat || args->said != 0 || args->batch > 0 ||
                        args->max_tokens > 0 || args->stop_count > 0))
        return err_set(ERR_USAGE, "--score reads a text and generates none: "
                                  "of the options it takes --weights, "
                                  "--threads, --context and --tokenizer");
    if (!args->chat && (args->system != NULL || args->chat_template != NULL))
        return err_set(ERR_USAGE, "--system and --chat-template need --chat");
    if (args->batch > 1 && args->prompts == NULL)
        return err_set(ERR_USAGE, "--batch needs --prompts FILE");
    return ERR_OK;
}

enum err generate_args_parse(int argc, char **argv, bool talk,
                             struct generate_args *out)
{
    const struct option *options = talk ? options_talk : options_generate;
    int key = 0, place = -1;
    *out = (struct generate_args){ .sample = sample_options_default,
                                   .chat = talk };
    opterr = 0;
    while ((key = getopt_long(argc, argv, ":", options, &place)) != -1) {
        if (key == ':')
            return err_set(ERR_USAGE, "%s needs a value; see --help",
                           argv[optind - 1]);
        if (key == '?')
            return cmd_main_no_option("no option ", argv[optind - 1], options);
        TRY(set_option(out, options[place].name, key));
        place = -1;
    }
    if (argc - optind != 1)
        return err_set(ERR_USAGE, "give one MODEL, not %d; see --help",
                       argc - optind);
    out->model = argv[optind];
    TRY(check_sample(out));
    return talk ? ERR_OK : check_generate(out);
}

void generate_args_sample(const struct generate_args *args,
                          const struct sample_options *model,
                          const struct sample_options *otherwise,
                          struct sample_options *out)
{
    unsigned said = args->said;
    const struct sample_options *sample = &args->sample;
    *out = model != NULL ? *model : *otherwise;
    if ((said & GENERATE_SAID_GREEDY) != 0)
        out->greedy = true;
    else if ((said & ~(unsigned)GENERATE_SAID_PENALTY) != 0)
        out->greedy = false;
    if ((said & GENERATE_SAID_TEMPERATURE) != 0)
        out->temperature = sample->temperature;
    if ((said & GENERATE_SAID_TOP_K) != 0)
        out->top_k = sample->top_k;
    if ((said & GENERATE_SAID_TOP_P) != 0)
        out->top_p = sample->top_p;
    if ((said & GENERATE_SAID_MIN_P) != 0)
        out->min_p = sample->min_p;
    if ((said & GENERATE_SAID_PENALTY) != 0)
        out->repetition_penalty = sample->repetition_penalty;
    if ((said & GENERATE_SAID_SEED) != 0)
        out->seed = sample->seed;
}
