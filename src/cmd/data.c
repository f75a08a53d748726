/* tessera-data: make, describe and check data sets. One table of commands, each
 * with the rows of options that it takes; all options lie in one struct, for
 * commands share most of them.
 *
 * Each command calls a function of src/data/prepare and prints what came of it, one
 * line and what there is to know besides. All of them look at stop_requested() on
 * their way: Ctrl-C ends a command between two samples, with what it was making
 * removed, or for tokenize in a state that the same command goes on from. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/clean.h"
#include "src/cmd/cmd_main.h"
#include "src/cmd/data_cmd.h"
#include "src/data/prepare/census.h"
#include "src/data/set/dataset.h"
#include "src/data/prepare/scan.h"
#include "src/data/prepare/tokenize.h"
#include "src/job/stop.h"

static enum err command_tokenize_text(struct data_options *all)
{
    struct tokenize_result result;
    struct tokenize_options *options = &all->tokenize;
    TRY(tokenize_files(options, all->operands, all->operand_count, &result));
    clean_printf("%s: %" PRId64 " samples, %" PRId64 " tokens, %" PRId64
                 " documents, %" PRId64 " bytes of text\n",
                 options->out, result.samples + result.eval_samples,
                 result.tokens, result.documents, result.bytes);
    if (result.dropped > 0)
        printf("%" PRId64 " tokens at the ends of documents are in no sample "
               "(--no-wrap)\n",
               result.dropped);
    if (options->eval_fraction > 0)
        clean_printf("%s/train: %" PRId64 " samples\n%s/eval: %" PRId64
                     " samples, the end of the last inputs\n",
                     options->out, result.samples, options->out,
                     result.eval_samples);
    if (options->holdout > 0)
        clean_printf("%s/train: %" PRId64 " samples\n%s/eval: %" PRId64
                     " samples of %" PRId64 " documents, by --seed %" PRId64
                     "\n",
                     options->out, result.samples, options->out,
                     result.eval_samples, result.held_documents, options->seed);
    return ERR_OK;
}

static enum err command_tokenize(struct data_options *all)
{
    enum err rc = ERR_OK;
    struct tokenize_options *options = &all->tokenize;
    char *template = NULL;
    options->eos_given = options_given(all->options, "eos-id");
    options->bos_given = options_given(all->options, "bos-id");
    if (options->holdout > 0 ? options->eval_fraction > 0 || options->no_wrap
                             : options_given(all->options, "seed"))
        return err_set(ERR_USAGE,
                       options->holdout > 0
                           ? "--holdout and %s exclude each other"
                           : "--seed is for --holdout",
                       options->no_wrap ? "--no-wrap" : "--eval-fraction");
    TRY_OUT(data_model_tokenizer(options->tokenizer, &options->lent,
                                 all->chat ? &template : NULL));
    if (data_finetune_asked(all))
        TRY_OUT(data_finetune_run(all, template));
    else
        TRY_OUT(command_tokenize_text(all));
out:
    free(template);
    tokenizer_destroy(options->lent);
    return rc;
}

static enum err command_info(struct data_options *options)
{
    enum err rc = ERR_OK;
    struct census census;
    char *text = NULL;
    if (options->columns && options->json)
        return err_set(ERR_USAGE, "--columns prints no JSON: leave out --json");
    if (options->columns)
        return data_columns_list(options->operands[0]);
    TRY_OUT(
        census_dataset(options->operands[0], true, stop_requested, &census));
    TRY_OUT(census_format(&census, options->json, &text));
    fputs(text, stdout);
out:
    free(text);
    return rc;
}

static enum err command_verify(struct data_options *options)
{
    enum err rc = ERR_OK;
    struct scan_result result;
    struct dataset *dataset = NULL;
    TRY_OUT(dataset_open(options->operands[0], &dataset));
    TRY_OUT(scan_verify(dataset, true, stop_requested, &result));
    char known[256], unknown[256];
    dataset_checksums(dataset, true, known, sizeof known);
    dataset_checksums(dataset, false, unknown, sizeof unknown);
    clean_printf("%s: good, %" PRId64 " samples, %" PRId64
                 " tokens; checksums: %s%s%s\n",
                 options->operands[0], result.samples, result.tokens,
                 known[0] != '\0' ? known : "none",
                 unknown[0] != '\0' ? "; not checked: " : "", unknown);
out:
    dataset_close(dataset);
    return rc;
}

/* What the new description leaves open. */
static enum err adopt_hint(const char *path)
{
    enum err rc = ERR_OK;
    char unknown[256];
    struct dataset *dataset = NULL;
    TRY_OUT(dataset_open(path, &dataset));
    if (!dataset_has_documents(dataset))
        clean_printf(
            "%s: documents are not separated: training on it needs "
            "model.attn_uses_sequence_id=false, or adopt it again with "
            "--eos-token-id N\n",
            path);
    dataset_checksums(dataset, false, unknown, sizeof unknown);
    if (unknown[0] != '\0')
        clean_printf("%s: checksums not known here, not checked: %s\n", path,
                     unknown);
out:
    dataset_close(dataset);
    return rc;
}

static enum err command_adopt(struct data_options *options)
{
    struct scan_result result;
    const struct scan_adoption *adoption = &options->adoption;
    if (adoption->vocab_size == 0 && adoption->tokenizer == NULL)
        return err_set(ERR_USAGE, "adopt needs --vocab-size N or the "
                                  "tokenizer's file: --tokenizer FILE");
    TRY(scan_adopt(options->operands[0], adoption, true, stop_requested,
                   &result));
    clean_printf("%s: adopted, %" PRId64 " samples, %" PRId64 " tokens\n",
                 options->operands[0], result.samples, result.tokens);
    return adopt_hint(options->operands[0]);
}

static const struct command {
    struct options_command command;
    enum err (*run)(struct data_options *options);
} commands[] = {
    { { "tokenize", "FILE...", NULL, data_options_tokenize, "out! *", 1, -1 },
      command_tokenize },
    { { "info", "DIR", "documents, tokens, loss, padding, text, entropy",
        data_options_sets, "json columns", 1, 1 },
      command_info },
    { { "head", "DIR", "samples as text (the first 3), or as tokens",
        data_options_sets, "from count tokens column raw", 1, 1 },
      data_head },
    { { "verify", "DIR", "check every shard and sample", data_options_sets, "",
        1, 1 },
      command_verify },
    { { "merge", "SET...", "one set of the shards of all", data_options_sets,
        "out!", 1, -1 },
      data_merge },
    { { "split", "SET", "sets of whole samples, in order", data_options_sets,
        "out! parts|fraction! shard-bytes", 1, 1 },
      data_split },
    { { "adopt", "DIR", NULL, data_options_adopt, "*", 1, 1 }, command_adopt },
    { { "encode", "", "text on standard input to tokens", data_options_encode,
        "*", 0, 0 },
      data_encode },
    { { "decode", "", "and back", data_options_encode, "tokenizer", 0, 0 },
      data_encode_back },
    { { "train-tokenizer", "TEXT...", NULL, data_options_learn,
        "vocab-size! out! *", 1, -1 },
      data_train_tokenizer_run },
};

static enum err run(const struct options *options, int *exit_code)
{
    struct data_options *all = options->into;
    (void)exit_code;
    all->options = options;
    all->operands = options->operands;
    all->operand_count = options->operand_count;
    all->tokenize.stop = stop_requested;
    TRY(stop_install());
    if (all->tokenize.out !=
        NULL) /* of which nothing half made is to be left */
        TRY(stop_outlive_readers());
    return ((const struct command *)options->command)->run(all);
}

int main(int argc, char **argv)
{
    static const struct options_program program = {
        .name = "data",
        .about = "Makes data sets and tokenizers, and looks at them.\n",
        .end = "exit codes: 0 done; 64 usage; 75 try again; 93 missing or "
               "damaged data\n",
        OPTIONS_COMMANDS(commands),
    };
    struct data_options options = data_options_default;
    return cmd_main(&(struct cmd_main){ &program, &options, run }, argc, argv);
}
