/* tessera-data: make, describe and check data sets. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clean.h"
#include "src/base/log.h"
#include "src/cmd/data_encode.h"
#include "src/cmd/data_columns.h"
#include "src/cmd/data_finetune.h"
#include "src/cmd/data_model.h"
#include "src/cmd/data_options.h"
#include "src/cmd/data_tools.h"
#include "src/cmd/data_train_tokenizer.h"
#include "src/cmd/data_usage.h"
#include "src/data/set/dataset.h"
#include "src/data/prepare/describe.h"
#include "src/data/prepare/scan.h"
#include "src/data/prepare/tokenize.h"
#include "src/job/exit_code.h"
#include "src/job/stop.h"

enum err data_one_folder(const struct data_options *options)
{
    if (options->operand_count == 1)
        return ERR_OK;
    return err_set(ERR_USAGE,
                   "this command takes one DIR, not %d; see "
                   "tessera-data --help",
                   options->operand_count);
}

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
    return ERR_OK;
}

static enum err command_tokenize(struct data_options *all)
{
    enum err rc = ERR_OK;
    struct tokenize_options *options = &all->tokenize;
    char *template = NULL;
    if (options->out == NULL || all->operand_count < 1)
        return err_set(ERR_USAGE, "tokenize needs --out DIR and at least one "
                                  "FILE; see tessera-data --help");
    options->stop = stop_requested;
    TRY_OUT(data_model_tokenizer(options->tokenizer, &options->lent,
                                 all->chat ? &template : NULL));
    if (all->chat || all->prompts || all->finetune_option != NULL)
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
    struct describe info;
    char *text = NULL;
    TRY_OUT(data_one_folder(options));
    TRY_OUT(
        describe_dataset(options->operands[0], true, stop_requested, &info));
    TRY_OUT(describe_format(&info, options->json, &text));
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
    TRY_OUT(data_one_folder(options));
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

static enum err command_cat(struct data_options *options)
{
    enum err rc = ERR_OK;
    struct dataset *dataset = NULL;
    TRY_OUT(data_one_folder(options));
    if (options->column != NULL || options->raw) {
        rc = data_columns_cat(options);
        goto out;
    }
    TRY_OUT(dataset_open(options->operands[0], &dataset));
    TRY_OUT(describe_print(dataset, options->from, options->count, stdout,
                           stop_requested));
out:
    dataset_close(dataset);
    return rc;
}

static enum err command_columns(struct data_options *options)
{
    TRY(data_one_folder(options));
    return data_columns_list(options->operands[0]);
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
    TRY(data_one_folder(options));
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

static enum err run(int argc, char **argv)
{
    static const struct {
        const char *name;
        enum err (*run)(struct data_options *options);
    } commands[] = {
        { "tokenize", command_tokenize },
        { "info", command_info },
        { "verify", command_verify },
        { "cat", command_cat },
        { "columns", command_columns },
        { "adopt", command_adopt },
        { "encode", data_encode },
        { "decode", data_encode_back },
        { "stat", data_stat },
        { "head", data_head },
        { "merge", data_merge },
        { "split", data_split },
        { "train-tokenizer", data_train_tokenizer_run },
    };
    struct data_options options;
    TRY(data_options_parse(argv[1], argc - 1, argv + 1, &options));
    TRY(stop_install());
    if (options.tokenize.out !=
        NULL) /* which nothing half made is to be left of */
        TRY(stop_outlive_readers());
    for (size_t c = 0; c < sizeof commands / sizeof commands[0]; c++)
        if (strcmp(argv[1], commands[c].name) == 0)
            TRY(commands[c].run(&options));
    return ERR_OK;
}

int main(int argc, char **argv)
{
    log_init("data", -1, LOG_INFO);
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            data_usage(stdout);
            return EXIT_DONE;
        }
        if (i == 1 && strcmp(argv[i], "--version") == 0) {
            puts("tessera " TESSERA_VERSION);
            return EXIT_DONE;
        }
    }
    if (argc < 2) {
        data_usage(stderr);
        return EXIT_USAGE;
    }
    enum err rc = run(argc, argv);
    if (rc == ERR_OK && (fflush(stdout) != 0 || ferror(stdout)))
        rc = err_errno("standard output");
    if (rc != ERR_OK)
        fprintf(stderr, "tessera-data: %s\n", err_text());
    return err_exit_code(rc);
}
