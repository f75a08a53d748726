/* The options of tessera-data's commands.
 *
 * Five tables, since --help shows a table once, however many commands share it, and
 * in this order. A heading in a table begins a paragraph of the help: it says what
 * the commands do, as the table of commands has no room for it.
 *
 * A field may belong to options of several tables (--out, --force): a process runs
 * one command, so it is set by one of them. A default that is a number the user
 * could have given cannot tell whether he did; where that matters, as with --eos-id,
 * options_given() is asked. Numbers in the help's brackets are those defaults: who
 * changes data_options_default changes them, too. */
#include "src/cmd/data_cmd.h"

#include <limits.h>

#include "src/text/tokenizer/bpe_train.h"
#include "src/text/tokenizer/tokenizer.h"

const struct data_options data_options_default = {
    .tokenize = { .seq_len = TOKENIZE_SEQ_LEN_DEFAULT,
                  .shard_bytes = TOKENIZE_SHARD_BYTES_DEFAULT,
                  .tokenizer = TOKENIZER_DEFAULT,
                  .show = true },
    .finetune = { .rules = { .target_prompts = FINETUNE_NO_PROMPTS } },
    .learn = { .min_frequency = 2 },
    .adoption = { .eos_token = -1, .bos_token = -1 },
    .count = INT64_MAX,
};

static const char *const responses[] = { "last", "all", NULL };
static const char *const too_long[] = { FINETUNE_TOO_LONG_NAMES, NULL };
static const char *const packing[] = { "off", "on", NULL };
static const char *const patterns[] = { BPE_TRAIN_PATTERN_NAMES, NULL };

const struct options_row data_options_tokenize[] = {
    OPTION_HEADING(
        "tokenize makes a data set of texts: files, folders, '-' for stdin; "
        "packed\n"
        "with gz, zst, bz2 or br, or not. A text file is a document, and so is "
        "one\n"
        "field of each record of JSON lines, .parquet or .arrow; samples are "
        "cut from\n"
        "the stream of all documents. Killed, the same command goes on where "
        "it was."),
    OPTION_TEXT(struct data_options, tokenize.out, "out", "DIR",
                "where to put it; it must not exist"),
    OPTION_WHOLE(struct data_options, tokenize.seq_len, "seq-len", "N", 1,
                 INT64_MAX, "tokens per sample (128)"),
    OPTION_WHOLE(struct data_options, tokenize.shard_bytes, "shard-bytes", "N",
                 1, INT64_MAX, "size of a shard file (67108864)"),
    OPTION_REAL(struct data_options, tokenize.eval_fraction, "eval-fraction",
                "F", OPTION_ABOVE_0, OPTION_BELOW_1,
                "hold out the last fraction of the samples, so the end of the "
                "last inputs: makes DIR/train, DIR/eval"),
    OPTION_REAL(struct data_options, tokenize.holdout, "holdout", "F",
                OPTION_ABOVE_0, OPTION_BELOW_1,
                "hold out that share of the documents, by their hashes: makes "
                "DIR/train, DIR/eval"),
    OPTION_WHOLE(struct data_options, tokenize.seed, "seed", "N", 0, INT64_MAX,
                 "which of them (0)"),
    OPTION_TEXT(struct data_options, tokenize.tokenizer, "tokenizer", "NAME",
                "a tokenizer.json or tokenizer.model, or bytes: one token per "
                "byte, vocabulary 257 (bytes); or a model that has one: a run, "
                "a checkpoint, a "
                "Hugging Face folder, a GGUF file"),
    OPTION_TEXT(struct data_options, tokenize.field, "field", "KEY",
                "all inputs but .parquet and .arrow are JSON lines, with the "
                "text in KEY; "
                "else those named .jsonl, .ndjson or .json (before .gz and so "
                "on), with it in 'text'"),
    OPTION_TEXT(struct data_options, tokenize.split, "split", "NAME",
                "of folders with Parquet or Arrow the files whose names tell "
                "that split (all: each)"),
    OPTION_TEXT(struct data_options, tokenize.encoding, "encoding", "NAME",
                "of texts and JSON lines: LATIN1, WINDOWS-1252, UTF-16, ... "
                "(UTF-8)"),
    OPTION_FLAG(struct data_options, tokenize.text, "text",
                "all inputs are text, whatever their names"),
    OPTION_FLAG(struct data_options, tokenize.binary, "binary",
                "take what is no UTF-8 text as it is; else it is an error, and "
                "passed over in folders"),
    OPTION_FLAG(struct data_options, tokenize.mds, "mds",
                "all inputs are MDS data sets, with a document in the column "
                "KEY ('text') of each sample: str or bytes"),
    OPTION_TEXT(struct data_options, tokenize.separator, "separator", "LINE",
                "lines equal to this one divide a text file into documents "
                "('': blank lines)"),
    OPTION_WHOLE(struct data_options, tokenize.eos_token, "eos-id", "N", 0,
                 INT64_MAX, "the token behind each document (the tokenizer's)"),
    OPTION_FLAG(struct data_options, tokenize.no_eos, "no-eos", "none"),
    OPTION_WHOLE(struct data_options, tokenize.bos_token, "bos-id", "N", 0,
                 INT64_MAX, "the token before each document (none)"),
    OPTION_FLAG(struct data_options, tokenize.no_wrap, "no-wrap",
                "no document goes on in the next sample: the rest of it is "
                "dropped"),
    OPTION_WHOLE(struct data_options, tokenize.threads, "threads", "N", 1,
                 INT_MAX, "encoding ones (as many as processors, up to 32)"),
    OPTION_FLAG(struct data_options, tokenize.fresh, "fresh",
                "leave what an unfinished call has done, begin anew"),
    OPTION_FLAG(struct data_options, tokenize.replace, "force",
                "replace DIR if tokenize made it"),
    OPTION_HEADING(
        "tokenize --chat and --prompts make fine-tuning data of JSON lines "
        "and\n.parquet or .arrow."),
    OPTION_FLAG(struct data_options, chat, "chat",
                "records have 'messages', or 'prompt' and 'response' (or "
                "'completion'), in a chat template"),
    OPTION_FLAG(struct data_options, prompts, "prompts",
                "records have 'prompt' and 'response', joined"),
    OPTION_TEXT(struct data_options, finetune.rules.fields, "fields", "LIST",
                "sharegpt, alpaca, or where records have what is wanted: "
                "messages=conversations,role=from,content=value"),
    OPTION_TEXT(struct data_options, finetune.template, "template", "NAME",
                "chatml, llama3, none, or a file in Jinja (the model's own, if "
                "--tokenizer's has one, or chatml)"),
    OPTION_CHOICE(struct data_options, finetune.rules.all_responses,
                  "target-responses", responses,
                  "which answers are learned (last)"),
    OPTION_TAKE("target-prompts", "none|all|length>=N", data_finetune_targets,
                "which prompts are (none)"),
    OPTION_CHOICE(struct data_options, finetune.rules.too_long, "too-long",
                  too_long,
                  "examples of more than --seq-len tokens: cut, left out, an "
                  "error (truncate)"),
    OPTION_CHOICE(struct data_options, finetune.packing, "packing", packing,
                  "several examples in a sample (off)"),
    { 0 },
};

const struct options_row data_options_sets[] = {
    OPTION_HEADING("info, head, verify, merge and split look at data sets, or "
                   "make others of them."),
    OPTION_FLAG(struct data_options, json, "json", "one JSON object"),
    OPTION_FLAG(struct data_options, columns, "columns",
                "only what a sample of any MDS data set has"),
    OPTION_WHOLE(struct data_options, from, "from", "N", 0, INT64_MAX,
                 "the first sample (0)"),
    OPTION_WHOLE(struct data_options, count, "count", "N", 0, INT64_MAX,
                 "how many (3 as text, else all)"),
    OPTION_FLAG(struct data_options, tokens, "tokens",
                "their tokens, a line per sample, not text"),
    OPTION_TEXT(struct data_options, column, "column", "NAME",
                "that column of any MDS data set, a line per sample"),
    OPTION_FLAG(struct data_options, raw, "raw",
                "its bytes, with nothing between them"),
    OPTION_TEXT(struct data_options, tokenize.out, "out", "DIR",
                "where to put what is made; it must not exist"),
    OPTION_WHOLE(struct data_options, parts, "parts", "N", 1, INT64_MAX,
                 "sets with equal numbers of samples"),
    OPTION_REAL(struct data_options, tokenize.eval_fraction, "fraction", "F",
                OPTION_ABOVE_0, OPTION_BELOW_1,
                "or DIR/train, and of this share DIR/eval"),
    OPTION_WHOLE(struct data_options, tokenize.shard_bytes, "shard-bytes", "N",
                 1, INT64_MAX, "size of a shard file (67108864)"),
    { 0 },
};

const struct options_row data_options_adopt[] = {
    OPTION_HEADING(
        "adopt describes a data set that Python's Streaming library wrote "
        "(column\ntokens: whole numbers), so that it can be used here."),
    OPTION_WHOLE(struct data_options, adoption.vocab_size, "vocab-size", "N", 1,
                 INT64_MAX, "size of the vocabulary"),
    OPTION_TEXT(struct data_options, adoption.tokenizer, "tokenizer", "NAME",
                "of the tokenizer, any name that identifies it; or its file "
                "(with a '/', or .json or .model at its end), which says all "
                "that the other options do not"),
    OPTION_WHOLE(struct data_options, adoption.eos_token, "eos-token-id", "N",
                 0, INT64_MAX, "the token that ends a document, or"),
    OPTION_WHOLE(struct data_options, adoption.bos_token, "bos-token-id", "N",
                 0, INT64_MAX,
                 "the one that begins it; without them documents of a sample "
                 "are not separated"),
    OPTION_TEXT(struct data_options, adoption.token_type, "token-type", "TYPE",
                "of a column 'bytes': int8 to uint64 (int64)"),
    { 0 },
};

const struct options_row data_options_encode[] = {
    OPTION_HEADING(
        "encode prints the tokens of all its input on one line; what is "
        "written\nlike a special token (<|endoftext|>) becomes one."),
    OPTION_TEXT(struct data_options, tokenize.tokenizer, "tokenizer", "NAME",
                "bytes, a tokenizer.json or tokenizer.model, or a model"),
    OPTION_FLAG(struct data_options, no_special, "no-special",
                "such text is text like any other"),
    OPTION_FLAG(struct data_options, template, "template",
                "add the tokens that the file puts before and behind a text "
                "(its post-processor)"),
    OPTION_FLAG(struct data_options, tokenize.binary, "binary",
                "take what is no UTF-8 text as it is"),
    { 0 },
};

const struct options_row data_options_learn[] = {
    OPTION_HEADING("train-tokenizer learns a byte-level BPE of texts, as "
                   "tokenize reads them."),
    OPTION_WHOLE(struct data_options, adoption.vocab_size, "vocab-size", "N", 1,
                 INT64_MAX, "tokens, with 256 bytes and the special ones"),
    OPTION_TEXT(struct data_options, tokenize.out, "out", "PATH",
                "FILE.json, or a folder for tokenizer.json and "
                "tokenizer_config.json"),
    OPTION_CHOICE(struct data_options, learn.pattern, "pattern", patterns,
                  "what divides texts into words (gpt2; digits one by one)"),
    OPTION_TEXTS(struct data_options, learn.special, "special", "TOKEN",
                 "a special token, again for more; the first ends a document "
                 "(<|endoftext|>)"),
    OPTION_WHOLE(struct data_options, learn.min_frequency, "min-frequency", "N",
                 1, INT64_MAX, "of a pair that is merged (2)"),
    OPTION_TEXT(struct data_options, tokenize.separator, "separator", "LINE",
                "as in tokenize, like the next five"),
    OPTION_TEXT(struct data_options, tokenize.field, "field", "KEY",
                "all inputs but .parquet and .arrow are JSON lines"),
    OPTION_TEXT(struct data_options, tokenize.split, "split", "NAME",
                "of folders with Parquet or Arrow"),
    OPTION_TEXT(struct data_options, tokenize.encoding, "encoding", "NAME",
                "of texts"),
    OPTION_FLAG(struct data_options, tokenize.text, "text",
                "all inputs are text"),
    OPTION_FLAG(struct data_options, tokenize.binary, "binary",
                "take what is no UTF-8 text as it is"),
    OPTION_WHOLE(struct data_options, tokenize.threads, "threads", "N", 1,
                 INT_MAX, "that count words"),
    OPTION_FLAG(struct data_options, tokenize.replace, "force",
                "replace files that are there"),
    { 0 },
};
