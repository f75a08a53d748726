/* The options of tessera-data's commands. */
#include "src/cmd/data_options.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "src/cmd/cmd_main.h"
#include "src/cmd/data_finetune.h"
#include "src/cmd/data_train_tokenizer.h"
#include "src/text/tokenizer/tokenizer.h"

static const struct option data_options_tokenize[] = {
    { "out", required_argument, NULL, 'o' },
    { "seq-len", required_argument, NULL, 'l' },
    { "shard-bytes", required_argument, NULL, 'b' },
    { "eval-fraction", required_argument, NULL, 'e' },
    { "separator", required_argument, NULL, 's' },
    { "tokenizer", required_argument, NULL, 't' },
    { "field", required_argument, NULL, 'F' },
    { "eos-id", required_argument, NULL, 1 },
    { "bos-id", required_argument, NULL, 2 },
    { "no-eos", no_argument, NULL, 3 },
    { "no-wrap", no_argument, NULL, 4 },
    { "threads", required_argument, NULL, 5 },
    { "fresh", no_argument, NULL, 6 },
    { "mds", no_argument, NULL, 7 },
    { "text", no_argument, NULL, 8 },
    { "binary", no_argument, NULL, 9 },
    { "force", no_argument, NULL, 'f' },
    DATA_FINETUNE_OPTIONS,
    { NULL, 0, NULL, 0 }
};
static const struct option data_options_info[] = {
    { "json", no_argument, NULL, 'j' }, { NULL, 0, NULL, 0 }
};
static const struct option data_options_verify[] = { { NULL, 0, NULL, 0 } };
static const struct option data_options_cat[] = {
    { "from", required_argument, NULL, 'i' },
    { "count", required_argument, NULL, 'n' },
    { "column", required_argument, NULL, 'c' },
    { "raw", no_argument, NULL, 'r' },
    { NULL, 0, NULL, 0 }
};
static const struct option data_options_head[] = {
    { "from", required_argument, NULL, 'i' },
    { "count", required_argument, NULL, 'n' },
    { "tokens", no_argument, NULL, 'k' },
    { NULL, 0, NULL, 0 }
};
static const struct option data_options_merge[] = {
    { "out", required_argument, NULL, 'o' }, { NULL, 0, NULL, 0 }
};
static const struct option data_options_split[] = {
    { "out", required_argument, NULL, 'o' },
    { "parts", required_argument, NULL, 'p' },
    { "fraction", required_argument, NULL, 'e' },
    { "shard-bytes", required_argument, NULL, 'b' },
    { NULL, 0, NULL, 0 }
};
static const struct option data_options_columns[] = { { NULL, 0, NULL, 0 } };
static const struct option data_options_adopt[] = {
    { "vocab-size", required_argument, NULL, 'v' },
    { "tokenizer", required_argument, NULL, 't' },
    { "eos-token-id", required_argument, NULL, 'E' },
    { "bos-token-id", required_argument, NULL, 'B' },
    { "token-type", required_argument, NULL, 'T' },
    { NULL, 0, NULL, 0 }
};
static const struct option data_options_encode[] = {
    { "tokenizer", required_argument, NULL, 't' },
    { "no-special", no_argument, NULL, 'S' },
    { "template", no_argument, NULL, 'P' },
    { "binary", no_argument, NULL, 9 },
    { NULL, 0, NULL, 0 }
};
static const struct option data_options_decode[] = {
    { "tokenizer", required_argument, NULL, 't' }, { NULL, 0, NULL, 0 }
};
static const struct option data_options_train_tokenizer[] = {
    { "vocab-size", required_argument, NULL, 'v' },
    { "out", required_argument, NULL, 'o' },
    { "pattern", required_argument, NULL, DATA_TRAIN_TOKENIZER_PATTERN },
    { "special", required_argument, NULL, DATA_TRAIN_TOKENIZER_SPECIAL },
    { "min-frequency", required_argument, NULL,
      DATA_TRAIN_TOKENIZER_FREQUENCY },
    { "separator", required_argument, NULL, 's' },
    { "field", required_argument, NULL, 'F' },
    { "text", no_argument, NULL, 8 },
    { "binary", no_argument, NULL, 9 },
    { "threads", required_argument, NULL, 5 },
    { "force", no_argument, NULL, 'f' },
    { NULL, 0, NULL, 0 }
};

static const struct data_options_command {
    const char *name;
    const struct option *options;
} data_options_commands[] = {
    { "tokenize", data_options_tokenize },
    { "info", data_options_info },
    { "verify", data_options_verify },
    { "cat", data_options_cat },
    { "columns", data_options_columns },
    { "adopt", data_options_adopt },
    { "encode", data_options_encode },
    { "decode", data_options_decode },
    { "stat", data_options_info },
    { "head", data_options_head },
    { "merge", data_options_merge },
    { "split", data_options_split },
    { "train-tokenizer", data_options_train_tokenizer },
};

static enum err data_options_int(const char *name, const char *text,
                                 int64_t min, int64_t *out)
{
    char *end = NULL;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < min)
        return err_set(ERR_USAGE,
                       "--%s takes a whole number of at least %lld, not '%s'",
                       name, (long long)min, text);
    *out = value;
    return ERR_OK;
}

static enum err data_options_fraction(const char *name, const char *text,
                                      double *out)
{
    char *end = NULL;
    *out = strtod(text, &end);
    if (end == text || *end != '\0' || !(*out > 0 && *out < 1))
        return err_set(ERR_USAGE,
                       "--%s takes a number between 0 and 1, not '%s'", name,
                       text);
    return ERR_OK;
}

static enum err data_options_threads(const char *name, const char *text,
                                     int *out)
{
    int64_t threads = 0;
    TRY(data_options_int(name, text, 1, &threads));
    *out = threads < INT_MAX ? (int)threads : INT_MAX;
    return ERR_OK;
}

/* Those that only tokenize has. */
static enum err data_options_set_tokenize(struct tokenize_options *out,
                                          const char *name, int key)
{
    switch (key) {
    case 'F':
        out->field = optarg;
        return ERR_OK;
    case 1:
        out->eos_given = true;
        return data_options_int(name, optarg, 0, &out->eos_token);
    case 2:
        out->bos_given = true;
        return data_options_int(name, optarg, 0, &out->bos_token);
    case 3:
        out->no_eos = true;
        return ERR_OK;
    case 4:
        out->no_wrap = true;
        return ERR_OK;
    case 5:
        return data_options_threads(name, optarg, &out->threads);
    case 6:
        out->fresh = true;
        return ERR_OK;
    case 7:
        out->mds = true;
        return ERR_OK;
    case 8:
        out->text = true;
        return ERR_OK;
    case 9:
        out->binary = true;
        return ERR_OK;
    default:
        return err_set(ERR_USAGE, "no option %s here; see tessera-data --help",
                       name);
    }
}

static enum err data_options_set(struct data_options *out, const char *name,
                                 int key)
{
    struct tokenize_options *tokenize = &out->tokenize;
    switch (key) {
    case 'o':
        tokenize->out = optarg;
        return ERR_OK;
    case 'l':
        return data_options_int(name, optarg, 1, &tokenize->seq_len);
    case 'b':
        return data_options_int(name, optarg, 1, &tokenize->shard_bytes);
    case 'e':
        return data_options_fraction(name, optarg, &tokenize->eval_fraction);
    case 's':
        tokenize->separator = optarg;
        return ERR_OK;
    case 't':
        tokenize->tokenizer = optarg;
        out->adoption.tokenizer = optarg;
        return ERR_OK;
    case 'E':
        return data_options_int(name, optarg, 0, &out->adoption.eos_token);
    case 'B':
        return data_options_int(name, optarg, 0, &out->adoption.bos_token);
    case 'T':
        out->adoption.token_type = optarg;
        return ERR_OK;
    case 'f':
        tokenize->replace = true;
        return ERR_OK;
    case 'S':
        out->no_special = true;
        return ERR_OK;
    case 'P':
        out->template = true;
        return ERR_OK;
    case 'v':
        return data_options_int(name, optarg, 1, &out->adoption.vocab_size);
    case 'i':
        return data_options_int(name, optarg, 0, &out->from);
    case 'n':
        return data_options_int(name, optarg, 0, &out->count);
    case 'p':
        return data_options_int(name, optarg, 1, &out->parts);
    case 'k':
        out->tokens = true;
        return ERR_OK;
    case 'c':
        out->column = optarg;
        return ERR_OK;
    case 'r':
        out->raw = true;
        return ERR_OK;
    case 'j':
        out->json = true;
        return ERR_OK;
    case ':':
        return err_set(ERR_USAGE, "%s needs a value; see tessera-data --help",
                       name);
    default:
        if (key >= (int)DATA_TRAIN_TOKENIZER_PATTERN)
            return data_train_tokenizer_set(out, name, key);
        return key >= (int)DATA_FINETUNE_CHAT
                   ? data_finetune_set(out, name, key)
                   : data_options_set_tokenize(tokenize, name, key);
    }
}

enum err data_options_parse(const char *command, int argc, char **argv,
                            struct data_options *out)
{
    const void *row;
    TRY(cmd_main_command(command, data_options_commands,
                         sizeof data_options_commands /
                             sizeof *data_options_commands,
                         sizeof *data_options_commands, &row));
    const struct option *options =
        ((const struct data_options_command *)row)->options;
    *out = (struct data_options){
        .tokenize = { .seq_len = TOKENIZE_SEQ_LEN_DEFAULT,
                      .shard_bytes = TOKENIZE_SHARD_BYTES_DEFAULT,
                      .tokenizer = TOKENIZER_DEFAULT,
                      .show = true },
        .finetune = DATA_FINETUNE_DEFAULTS,
        .learn = { .min_frequency = 2 },
        .adoption = { .eos_token = -1, .bos_token = -1 },
        .count = INT64_MAX,
    };
    int key = 0, place = -1;
    opterr = 0;
    while ((key = getopt_long(argc, argv, ":", options, &place)) != -1) {
        /* of a short one, none of which exists, optind tells nothing */
        char letter[] = { '-', (char)optopt, '\0' };
        const char *name = place >= 0 && key != '?' && key != ':'
                               ? options[place].name
                           : key == '?' && optopt != 0 ? letter
                                                       : argv[optind - 1];
        if (key == '?')
            return cmd_main_no_option("no option ", name, options);
        TRY(data_options_set(out, name, key));
        place = -1;
    }
    out->operands = argv + optind;
    out->operand_count = argc - optind;
    return ERR_OK;
}
