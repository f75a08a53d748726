/* tessera-convert FILE: the configuration of another trainer as one of ours. */
#include <stdlib.h>
#include <string.h>

#include "src/base/output.h"
#include "src/cmd/cmd_main.h"
#include "src/convert/foreign.h"

struct convert_options {
    const char *out, *from;
    int64_t ranks;
};

static const struct options_row rows[] = {
    OPTION_PATH(struct convert_options, out, "out", "FILE",
                "write there instead of standard output"),
    OPTION_TEXT(struct convert_options, from, "from", "TRAINER",
                "whose it is: llm-foundry, torchtitan, hf (by its keys)"),
    OPTION_WHOLE(struct convert_options, ranks, "ranks", "N", 1, 65536,
                 "GPUs that it was for, where the file has a batch for each"),
    { 0 },
};

static enum err run(const struct options *line, int *exit_code)
{
    enum err rc = ERR_OK;
    const struct convert_options *options = line->into;
    const char *const inputs[] = { line->operands[0] };
    struct output out = { .file = NULL };
    char *text = NULL;
    (void)exit_code;
    TRY(foreign_convert(inputs[0], options->from, options->ranks, &text));
    if (options->out != NULL)
        TRY_OUT(output_begin(options->out, inputs, 1, &out));
    fputs(text, options->out != NULL ? out.file : stdout);
    rc = output_end(&out, false);
out:
    output_drop(&out);
    free(text);
    return rc;
}

static const struct options_command commands[] = {
    { .operands = "FILE", .rows = rows, .operands_min = 1, .operands_max = 1 }
};

int main(int argc, char **argv)
{
    static const struct options_program program = {
        .name = "convert",
        .about = "Makes a configuration of another trainer into one of "
                 "tessera-train: LLM Foundry's\nYAML, torchtitan's TOML, "
                 "Hugging Face's TrainingArguments as JSON or YAML. What\nhas "
                 "no setting here stands below as comments, with the reason.\n",
        .end =
            "exit codes: 0; 64 usage, or a file that cannot be read, with its "
            "line\n",
        OPTIONS_COMMANDS(commands),
    };
    struct convert_options options = { .ranks = 0 };
    return cmd_main(&(struct cmd_main){ &program, &options, run }, argc, argv);
}
