/* tessera-data: make, describe and check data sets. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/cmd/data_encode.h"
#include "src/cmd/data_finetune.h"
#include "src/cmd/data_options.h"
#include "src/cmd/data_tools.h"
#include "src/cmd/data_train_tokenizer.h"
#include "src/data/dataset.h"
#include "src/data/describe.h"
#include "src/data/scan.h"
#include "src/data/tokenize.h"
#include "src/job/exit_code.h"
#include "src/job/stop.h"

static const char usage[] =
    "usage: tessera-data tokenize --out DIR [OPTION]... FILE...\n"
    "       tessera-data info [--json] DIR    size, vocabulary, entropy\n"
    "       tessera-data stat [--json] DIR    documents, loss, padding, text\n"
    "       tessera-data head [--from N] [--count N] [--tokens] DIR\n"
    "                                         samples as text (the first 3)\n"
    "       tessera-data verify DIR           check every shard and sample\n"
    "       tessera-data cat [--from N] [--count N] DIR\n"
    "                                         tokens, a line per sample\n"
    "       tessera-data merge --out DIR SET...   one set of the shards of "
    "all\n"
    "       tessera-data split --out DIR --parts N|--fraction F SET\n"
    "                                         sets of whole samples, in order\n"
    "       tessera-data adopt --vocab-size N [OPTION]... DIR\n"
    "       tessera-data encode|decode [--tokenizer NAME] [OPTION]...\n"
    "                                         text to tokens and back, from\n"
    "                                         standard input to output\n"
    "       tessera-data train-tokenizer --vocab-size N --out PATH "
    "[OPTION]... TEXT...\n"
    "       tessera-data --help | --version\n\n"
    "tokenize makes a data set of texts: files, folders, '-' for stdin; "
    "packed\n"
    "with gz, zst, bz2 or br, or not. A text file is a document, and so is "
    "one\n"
    "field of each record of JSON lines; samples are cut from the stream of "
    "all\n"
    "documents. Killed, the same command goes on where it was.\n"
    "  --out DIR          where to put it; it must not exist\n"
    "  --seq-len N        tokens per sample (128)\n"
    "  --shard-bytes N    size of a shard file (67108864)\n"
    "  --eval-fraction F  hold out the last fraction of the samples: makes\n"
    "                     DIR/train and DIR/eval\n"
    "  --tokenizer NAME   a tokenizer.json, or bytes: one token per byte,\n"
    "                     vocabulary 257 (bytes)\n"
    "  --field KEY        all inputs are JSON lines, with the text in KEY; "
    "else\n"
    "                     those are whose names end in .jsonl, .ndjson or "
    ".json\n"
    "                     (before .gz and so on), with it in 'text'\n"
    "  --separator LINE   lines equal to this one divide a text file into\n"
    "                     documents ('': blank lines)\n"
    "  --eos-id N         the token behind each document (the tokenizer's)\n"
    "  --no-eos           none\n"
    "  --bos-id N         the token before each document (none)\n"
    "  --no-wrap          no document goes on in the next sample: drop the "
    "rest\n"
    "  --threads N        encoding ones (as many as there are processors, to "
    "32)\n"
    "  --fresh            leave what an unfinished call has done, begin anew\n"
    "  --force            replace DIR if tokenize made it\n\n"
    "tokenize --chat and --prompts make fine-tuning data of JSON lines.\n"
    "  --chat             records have 'messages', or 'prompt' and 'response'\n"
    "                     (or 'completion'), in a chat template\n"
    "  --prompts          records have 'prompt' and 'response', joined\n"
    "  --template NAME    chatml, llama3, none, or a file in Jinja (chatml)\n"
    "  --target-responses last | all     which answers are learned (last)\n"
    "  --target-prompts none | all | length>=N    which prompts are (none)\n"
    "  --too-long truncate | drop | refuse    examples of more than --seq-len\n"
    "                     tokens: cut, left out, an error (truncate)\n"
    "  --packing off | on several examples in a sample (off)\n\n"
    "adopt describes a data set that Python's Streaming library wrote (column\n"
    "tokens: whole numbers), so that it can be used here.\n"
    "  --vocab-size N     size of the vocabulary\n"
    "  --tokenizer NAME   of the tokenizer, any name that identifies it; or "
    "its\n"
    "                     file (with a '/', or .json at its end), which gives\n"
    "                     all that the other options do not say\n"
    "  --eos-token-id N   the token that ends a document, or\n"
    "  --bos-token-id N   the one that begins it; without them documents of a\n"
    "                     sample are not separated\n"
    "  --token-type TYPE  of a column 'bytes': int8 to uint64 (int64)\n\n"
    "encode prints the tokens of all its input on one line; what is written\n"
    "like a special token (<|endoftext|>) becomes one.\n"
    "  --tokenizer NAME   bytes, or the path of a tokenizer.json\n"
    "  --no-special       such text is text like any other\n"
    "  --template         add the tokens that the file puts before and behind\n"
    "                     a text (its post-processor)\n\n"
    "train-tokenizer learns a byte-level BPE of texts, as tokenize reads "
    "them.\n"
    "  --vocab-size N     tokens, with 256 bytes and the special ones\n"
    "  --out PATH         FILE.json, or a folder for tokenizer.json and\n"
    "                     tokenizer_config.json\n"
    "  --pattern NAME     gpt2, llama3 or digits (gpt2, digits one by one)\n"
    "  --special TOKEN    a special token, again for more; the first ends a\n"
    "                     document (<|endoftext|>)\n"
    "  --min-frequency N  of a pair that is merged (2)\n"
    "  --threads N        that count words\n"
    "  --force            replace files that are there\n\n"
    "exit codes: 0 done; 64 usage; 75 try again; 93 missing or damaged data\n";

enum err data_one_folder(const struct data_options *options)
{
    if (options->operand_count == 1)
        return ERR_OK;
    return err_set(ERR_USAGE,
                   "this command takes one DIR, not %d; see "
                   "tessera-data --help",
                   options->operand_count);
}

static enum err command_tokenize(struct data_options *all)
{
    struct tokenize_result result;
    struct tokenize_options *options = &all->tokenize;
    if (options->out == NULL || all->operand_count < 1)
        return err_set(ERR_USAGE, "tokenize needs --out DIR and at least one "
                                  "FILE; see tessera-data --help");
    options->stop = stop_requested;
    if (all->chat || all->prompts || all->finetune_option != NULL)
        return data_finetune_run(all);
    TRY(tokenize_files(options, all->operands, all->operand_count, &result));
    printf("%s: %" PRId64 " samples, %" PRId64 " tokens, %" PRId64
           " documents, %" PRId64 " bytes of text\n",
           options->out, result.samples + result.eval_samples, result.tokens,
           result.documents, result.bytes);
    if (options->eval_fraction > 0)
        printf("%s/train: %" PRId64 " samples\n%s/eval: %" PRId64 " samples\n",
               options->out, result.samples, options->out, result.eval_samples);
    return ERR_OK;
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
    printf("%s: good, %" PRId64 " samples, %" PRId64
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
    TRY_OUT(dataset_open(options->operands[0], &dataset));
    TRY_OUT(describe_print(dataset, options->from, options->count, stdout,
                           stop_requested));
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
    if (dataset_eos_token(dataset) < 0 && dataset_bos_token(dataset) < 0)
        printf("%s: documents are not separated: training on it needs "
               "model.attn_uses_sequence_id=false, or adopt it again with "
               "--eos-token-id N\n",
               path);
    dataset_checksums(dataset, false, unknown, sizeof unknown);
    if (unknown[0] != '\0')
        printf("%s: checksums not known here, not checked: %s\n", path,
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
    printf("%s: adopted, %" PRId64 " samples, %" PRId64 " tokens\n",
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
            fputs(usage, stdout);
            return EXIT_DONE;
        }
        if (i == 1 && strcmp(argv[i], "--version") == 0) {
            puts("tessera " TESSERA_VERSION);
            return EXIT_DONE;
        }
    }
    if (argc < 2) {
        fputs(usage, stderr);
        return EXIT_USAGE;
    }
    enum err rc = run(argc, argv);
    if (rc == ERR_OK && (fflush(stdout) != 0 || ferror(stdout)))
        rc = err_errno("standard output");
    if (rc != ERR_OK)
        fprintf(stderr, "tessera-data: %s\n", err_text());
    return err_exit_code(rc);
}
