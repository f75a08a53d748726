/* tessera-hf: models of other programs in, and ours out. One process, no GPU,
 * no Slurm, memory of parts of some tensors: a login node will do.
 *
 * What the commands do is src/convert. --verify and the command verify read what
 * was written as a stranger's file, by the way of import, and compare it with what
 * it was made of: a mistake that writer and reader share is not found so, which is
 * why tests/interop asks the other programs, too. */

#include "src/convert/hf_cmd.h"
#include "src/cmd/cmd_main.h"
#include "src/formats/safetensors/safetensors_writer.h"
#include "src/job/stop.h"
#include "src/data/remote/cache.h"
#include "src/mirror/home.h"
#include "src/mirror/home_out.h"

static const char *const formats[] = { "hf", "gguf", NULL };

static const struct options_row rows[] = {
    OPTION_PATH(struct hf_cmd, out, "out", "OUT",
                "what is made: of import a run directory or a checkpoint, of "
                "export a folder, or a file NAME.gguf; new"),
    OPTION_CHOICE(struct hf_cmd, format, "format", formats,
                  "safetensors, config.json, tokenizer; or one file (hf)"),
    OPTION_CHOICE(struct hf_cmd, dtype, "dtype", hf_cmd_dtypes,
                  "of the matrices (fp32); q8_0: gguf only"),
    OPTION_BYTES(struct hf_cmd, shard_bytes_max, "max-shard-size", "SIZE",
                 "of a file of safetensors, such as 2GiB (4.6GiB)"),
    OPTION_FLAG(struct hf_cmd, adapter, "adapter",
                "the model's adapters (LoRA) alone, for peft"),
    OPTION_FLAG(struct hf_cmd, verify, "verify",
                "read what was written back and compare"),
    { 0 },
};

static const struct command {
    struct options_command command;
    enum err (*run)(struct hf_cmd *cmd);
} commands[] = {
    { { "import", "DIR|FILE.gguf",
        "a checkpoint of a Hugging Face folder or GGUF file", rows,
        "out! verify", 1, 1 },
      hf_import },
    { { "export", "MODEL", "the other way round", rows, "out! *", 1, 1 },
      hf_export },
    { { "verify", "A B", "are two models the same?", rows, "", 2, 2 },
      hf_verify },
};

/* Signals are remembered and looked for between parts of the work, so that what
 * was begun is removed. */
static enum err run(const struct options *options, int *exit_code)
{
    struct hf_cmd *cmd = options->into;
    const struct command *command = (const void *)options->command;
    for (int i = 0; i < options->operand_count; i++)
        cmd->paths[i] = options->operands[i];
    TRY(stop_install());
    home_terms(cache_defaults.deadline_s, stop_is_requested);
    TRY(stop_outlive_readers());
    cmd->said = cmd->out;
    if (cmd->out != NULL)
        TRY(home_out_begin(cmd->out,
                           command->run == hf_import    ? "MANIFEST.json"
                           : cmd->format == HF_CMD_GGUF ? "model.gguf"
                           : cmd->adapter               ? "adapter_config.json"
                                                        : "config.json",
                           stop_is_requested, &cmd->out));
    TRY(home_out_end(command->run(cmd)));
    *exit_code = cmd->exit_code;
    return ERR_OK;
}

int main(int argc, char **argv)
{
    static const struct options_program program = {
        .name = "hf",
        .about = "MODEL, A and B are checkpoints, run directories (the newest "
                 "checkpoint), Hugging\nFace folders or GGUF files, or such at "
                 "s3://BUCKET/PREFIX. The name of a\ncheckpoint is one like "
                 "step-000000000.\n",
        .end = "exit codes: 0 done, or the same; 1 verify: they differ; 64 "
               "usage, or a path that\nnames nothing; 75 the file system "
               "failed or is full, try again; 93 bad\nor unsupported data\n",
        OPTIONS_COMMANDS(commands),
    };
    struct hf_cmd cmd = { .shard_bytes_max = (int64_t)SAFETENSORS_SHARD_BYTES };
    return cmd_main(&(struct cmd_main){ &program, &cmd, run }, argc, argv);
}
