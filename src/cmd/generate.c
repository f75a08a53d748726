/* tessera-generate MODEL: continues prompts, or scores a text.
 *
 * Like tessera-chat it is a command line around src/generate, which opens whatever
 * the model lies in, chooses how tokens are drawn and prints. Standard output has
 * the continuation alone, or a line of JSON for each prompt of a file, so that it
 * can be piped; what is told of the model and of speed goes to the log. */
#include "src/base/exit_code.h"
#include "src/base/log.h"
#include "src/cmd/cmd_main.h"
#include "src/generate/generate_texts.h"

/* Greedily, unless the model or somebody says otherwise: without a word the same
 * prompt has the same continuation. */
static enum err run(const void *into, struct comm *comm)
{
    const struct generate_args *args = into;
    enum err rc = ERR_OK;
    struct generate_engine engine = { .comm = comm };
    struct sample_options greedy = sample_options_default;
    greedy.greedy = true;
    TRY_OUT(comm_agree(comm, generate_engine_open(args, &greedy, &engine)));
    TRY_OUT(args->score ? generate_texts_score(&engine)
                        : generate_texts_continue(&engine));
out:
    if (rc != ERR_COMM) /* collective: infer_ranks.h */
        generate_engine_close(&engine);
    return rc;
}

static const struct options_command commands[] = {
    { .operands = "MODEL",
      .rows = generate_args_rows,
      .choice = "prompt|prompts|score! *",
      .operands_min = 1,
      .operands_max = 1 }
};

int main(int argc, char **argv)
{
    static const struct options_program program = {
        .name = "generate",
        .about = "Continues texts with a model: a checkpoint, a run directory, "
                 "a Hugging Face\nfolder or a GGUF file. The continuation "
                 "alone goes to standard output; with\n--prompts a line of "
                 "JSON for each. --score reads a text from standard input.\n",
        .end = "Without options of sampling tokens are chosen as the "
               "model's " GENERATE_CONFIG_FILE
               "\nsays, and greedily if it says nothing.\n",
        OPTIONS_COMMANDS(commands),
    };
    int exit_code;
    struct options line;
    struct generate_args args = { .model = NULL };
    const struct cmd_main cmd = { &program, &args, NULL };
    kernels_wait_passively(argv);
    log_init("generate", -1, LOG_INFO);
    if (cmd_main_options(&cmd, argc, argv, &line, &exit_code))
        return exit_code;
    enum err rc = generate_args_check(&line);
    return rc != ERR_OK ? cmd_main_end(&cmd, rc, EXIT_DONE)
                        : cmd_main_ranks(&cmd, argc, argv, run);
}
