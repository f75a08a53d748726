/* tessera-hf: models of other programs in, and ours out. One process, no GPU,
 * no Slurm, memory of some tensors' pieces: a login node will do. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/units.h"
#include "src/cmd/hf_cmd.h"
#include "src/cmd/cmd_main.h"
#include "src/formats/safetensors/safetensors_writer.h"
#include "src/job/stop.h"

static const char usage_text[] =
    "usage: tessera-hf import DIR|FILE.gguf --out OUT [--verify]\n"
    "                                     a checkpoint of a Hugging Face "
    "folder or GGUF file\n"
    "       tessera-hf export MODEL --out OUT [--format hf|gguf] [--dtype "
    "TYPE]\n"
    "                  [--max-shard-size SIZE] [--verify]\n"
    "                                     the other way round\n"
    "       tessera-hf export MODEL --out OUT --adapter\n"
    "                                     its adapters (LoRA) alone, for peft\n"
    "       tessera-hf verify A B         are two models the same?\n"
    "       tessera-hf --help | --version\n\n"
    "MODEL, A and B are checkpoints, run directories (the newest checkpoint), "
    "Hugging\nFace folders or GGUF files. OUT is new: of import a run "
    "directory "
    "or a checkpoint\n(a name like step-000000000), of export a folder, or a "
    "file NAME.gguf.\n"
    "  --format hf|gguf        safetensors, config.json, tokenizer; or one "
    "file (hf)\n"
    "  --dtype fp32|bf16|fp16|q8_0\n"
    "                          of the matrices (fp32); q8_0: gguf only\n"
    "  --max-shard-size SIZE   of a file of safetensors, such as 2GiB "
    "(4.6GiB)\n"
    "  --verify                read what was written back and compare\n"
    "\nexit codes: 0 done, or the same; 1 verify: they differ; 64 usage, or a "
    "path that\nnames nothing; 75 the file system failed or is full, try "
    "again; "
    "93 bad\nor unsupported data\n";

const char *const hf_cmd_dtypes[] = { "fp32", "bf16", "fp16", "q8_0", NULL };
const char *const hf_cmd_torch_dtypes[] = { "float32", "bfloat16", "float16",
                                            "q8_0" };

static const struct option options[] = {
    { "out", required_argument, NULL, 'o' },
    { "format", required_argument, NULL, 'f' },
    { "dtype", required_argument, NULL, 'd' },
    { "max-shard-size", required_argument, NULL, 's' },
    { "adapter", no_argument, NULL, 'a' },
    { "verify", no_argument, NULL, 'v' },
    { NULL, 0, NULL, 0 }
};

static const struct command {
    const char *name;
    enum err (*run)(const struct hf_cmd *cmd, int *exit_code);
    const char *letters;
    int paths;
    bool out;
} commands[] = {
    { "import", hf_import, "ov", 1, true },
    { "export", hf_export, "ofdsav", 1, true },
    { "verify", hf_verify, "", 2, false },
};

static enum err choose(const char *option, const char *const *names, int *out)
{
    for (int i = 0; names[i] != NULL; i++)
        if (strcmp(optarg, names[i]) == 0) {
            *out = i;
            return ERR_OK;
        }
    return err_set(ERR_USAGE, "--%s has no '%s'; see --help", option, optarg);
}

static enum err set_option(struct hf_cmd *cmd, int letter)
{
    static const char *const formats[] = { "hf", "gguf", NULL };
    int chosen = 0;
    switch (letter) {
    case 'o':
        cmd->out = optarg;
        return optarg[0] != '\0' ? ERR_OK
                                 : err_set(ERR_USAGE, "--out is empty");
    case 'f':
        TRY(choose("format", formats, &chosen));
        cmd->format = (enum hf_cmd_format)chosen;
        return ERR_OK;
    case 'd':
        TRY(choose("dtype", hf_cmd_dtypes, &chosen));
        cmd->dtype = (enum hf_cmd_dtype)chosen;
        return ERR_OK;
    case 's':
        TRY(units_bytes_parse(optarg, &cmd->shard_bytes_max));
        return cmd->shard_bytes_max > 0
                   ? ERR_OK
                   : err_set(ERR_USAGE, "--max-shard-size must be above 0");
    case 'a':
        cmd->adapter = true;
        return ERR_OK;
    default:
        cmd->verify = true;
        return ERR_OK;
    }
}

static enum err parse(int argc, char **argv, const char *letters, int paths,
                      bool out, struct hf_cmd *cmd)
{
    *cmd =
        (struct hf_cmd){ .shard_bytes_max = (int64_t)SAFETENSORS_SHARD_BYTES };
    opterr = 0;
    optind = 1;
    for (;;) {
        int letter = getopt_long(argc, argv, ":", options, NULL);
        if (letter == -1)
            break;
        if (letter == ':')
            return err_set(ERR_USAGE, "%s needs a value; see --help",
                           argv[optind - 1]);
        if (letter == '?' || strchr(letters, letter) == NULL) {
            char what[64];
            snprintf(what, sizeof what, "%.32s has no option ", argv[0]);
            return cmd_main_no_option(what, argv[optind - 1], options);
        }
        TRY(set_option(cmd, letter));
    }
    if (argc - optind != paths)
        return err_set(ERR_USAGE, "%s takes %d path%s, not %d; see --help",
                       argv[0], paths, paths == 1 ? "" : "s", argc - optind);
    for (int i = 0; i < paths; i++)
        cmd->paths[i] = argv[optind + i];
    if (out && cmd->out == NULL)
        return err_set(ERR_USAGE, "%s needs --out; see --help", argv[0]);
    return ERR_OK;
}

enum err hf_poll(void)
{
    return stop_requested() == 0
               ? ERR_OK
               : err_set(ERR_IO, "interrupted: what was begun is removed");
}

static enum err run(int argc, char **argv, int *exit_code)
{
    struct hf_cmd cmd;
    const void *row;
    TRY(cmd_main_command(argv[1], commands,
                         sizeof commands / sizeof commands[0],
                         sizeof commands[0], &row));
    const struct command *command = row;
    TRY(parse(argc - 1, argv + 1, command->letters, command->paths,
              command->out, &cmd));
    TRY(stop_install());
    TRY(stop_outlive_readers());
    return command->run(&cmd, exit_code);
}

static void usage(FILE *out)
{
    fputs(usage_text, out);
}

int main(int argc, char **argv)
{
    const struct cmd_main hf = {
        .name = "hf", .usage = usage, .commands = true, .run = run
    };
    return cmd_main(&hf, argc, argv);
}
