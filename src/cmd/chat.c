/* tessera-chat MODEL: a conversation, on a terminal or from a pipe. Answers go to
 * standard output and all else to standard error, so that a pipe has the model's
 * words alone. */
#include <stdio.h>
#include <string.h>

#include "src/base/log.h"
#include "src/generate/chat_line.h"
#include "src/generate/chat_talk.h"
#include "src/generate/generate_engine.h"
#include "src/generate/generate_texts.h"
#include "src/cmd/cmd_main.h"

/* Without --context: more would take memory that few conversations need. */
#define CONTEXT 8192
#define TEMPERATURE 0.7
#define TOP_P 0.9

struct chat {
    struct generate_engine engine;
    struct chat_line *line;
    struct chat_talk *talk;
};

static bool interrupted(void *arg)
{
    struct chat *chat = arg;
    return chat_line_interrupted(chat->line);
}

static enum err before(void *arg, bool *stop)
{
    *stop = interrupted(arg);
    return ERR_OK;
}

static enum err show(void *arg, size_t prompt, const char *text, size_t bytes)
{
    (void)arg;
    (void)prompt;
    return generate_texts_show(text, bytes);
}

/* An answer is over: why, if not by itself, and it becomes part of the talk. */
static enum err answered(void *arg, size_t prompt,
                         const struct generate_result *result)
{
    struct chat *chat = arg;
    TRY(show(arg, prompt, "\n", 1));
    if (result->end == GENERATE_INTERRUPTED)
        fputs("[interrupted]\n", stderr);
    if (result->end == GENERATE_CONTEXT)
        fputs("[the context is full: /reset]\n", stderr);
    if (result->end == GENERATE_MAX_TOKENS)
        fputs("[--max-tokens]\n", stderr);
    return chat_talk_answer(chat->talk, result);
}

/* What cannot be said is told, and the conversation goes on. */
static enum err tell(enum err rc)
{
    if (rc != ERR_USAGE && rc != ERR_DATA && rc != ERR_FULL && rc != ERR_SPACE)
        return rc;
    fprintf(stderr, "[%s]\n", err_text());
    return ERR_OK;
}

static enum err say(struct chat *chat, const char *text, size_t bytes)
{
    struct generate_prompt prompt;
    const struct generate_args *args = chat->engine.args;
    const struct generate_hooks hooks = {
        .arg = chat, .before = before, .text = show, .result = answered
    };
    const struct generate_options options = generate_engine_options(
        &chat->engine,
        args->max_tokens > 0 ? args->max_tokens : chat->engine.context);
    enum err rc = chat_talk_say(chat->talk, text, bytes, &prompt);
    if (rc != ERR_OK)
        return tell(rc);
    return generate_run(chat->engine.generate, &options, &prompt, 1, &hooks);
}

/* A line that begins with a slash; *quit: it ends the program. No mistake in one ends
 * it, for then the conversation would be gone. */
static enum err command(struct chat *chat, const char *text, bool *quit)
{
    *quit = strcmp(text, "/quit") == 0;
    if (*quit)
        return ERR_OK;
    if (strcmp(text, "/reset") == 0)
        return chat_talk_reset(chat->talk);
    if (strncmp(text, "/save ", 6) == 0 && text[6] != '\0') {
        /* whatever the file is, the conversation goes on */
        if (chat_talk_save(chat->talk, text + 6) == ERR_OK)
            fprintf(stderr, "[appended to %s]\n", text + 6);
        else
            fprintf(stderr, "[%s]\n", err_text());
        return ERR_OK;
    }
    fprintf(stderr, "[%s is none of /reset, /save FILE and /quit]\n", text);
    return ERR_OK;
}

static enum err talk(struct chat *chat)
{
    bool quit = false;
    while (!quit) {
        enum chat_line_got got;
        const char *text = NULL;
        size_t bytes = 0;
        TRY(chat_line_read(chat->line, "> ", &got, &text, &bytes));
        if (got == CHAT_LINE_END)
            break;
        if (got == CHAT_LINE_INTERRUPTED)
            fputs("\n[/quit or Ctrl-D ends]\n", stderr);
        else if (text[0] == '/')
            TRY(command(chat, text, &quit));
        else if (bytes > 0)
            TRY(say(chat, text, bytes));
    }
    return ERR_OK;
}

static enum err start(struct chat *chat)
{
    char choice[160];
    struct generate_engine *engine = &chat->engine;
    if (engine->args->context == 0 && engine->context > CONTEXT)
        engine->context = CONTEXT;
    engine->interrupted = interrupted;
    engine->interrupted_arg = chat;
    TRY(generate_engine_start(engine, 1, engine->context));
    sample_describe(&engine->sample, choice, sizeof choice);
    log_info("tokens: %s (%s)", choice, engine->sample_of);
    return chat_talk_create(engine, &chat->talk);
}

static enum err run(const struct options *options, int *exit_code)
{
    enum err rc = ERR_OK;
    struct chat chat = { .line = NULL };
    struct sample_options otherwise = sample_options_default;
    otherwise.temperature = TEMPERATURE;
    otherwise.top_p = TOP_P;
    (void)exit_code;
    TRY(generate_args_check(options));
    TRY_OUT(chat_line_create(&chat.line));
    TRY_OUT(generate_engine_open(options->into, &otherwise, &chat.engine));
    TRY_OUT(start(&chat));
    TRY_OUT(talk(&chat));
out:
    chat_talk_destroy(chat.talk);
    generate_engine_close(&chat.engine);
    chat_line_destroy(chat.line);
    return rc;
}

static const struct options_command commands[] = {
    { .operands = "MODEL",
      .rows = generate_args_rows,
      .choice = "system max-tokens greedy temperature top-k top-p min-p "
                "repetition-penalty seed stop weights backend context "
                "threads tokenizer chat-template",
      .operands_min = 1,
      .operands_max = 1 }
};

int main(int argc, char **argv)
{
    static const struct options_program program = {
        .name = "chat",
        .about =
            "A conversation with a model: a checkpoint, a run directory, a "
            "Hugging Face folder\nor a GGUF file. A line is a message, one "
            "that ends with a backslash goes on.\nAnswers go to standard "
            "output.\n\n"
            "  /reset          a new conversation\n"
            "  /save FILE      append it to FILE, for tessera-data tokenize "
            "--chat\n"
            "  /quit, Ctrl-D   end\n"
            "  Ctrl-C          end the answer\n",
        .end = "Without options of sampling tokens are chosen as the "
               "model's " GENERATE_CONFIG_FILE
               "\nsays, and if it says nothing by --temperature 0.7 --top-p "
               "0.9.\n--context is 8192, if the model has as many.\n",
        OPTIONS_COMMANDS(commands),
    };
    struct generate_args args = { .talk = true, .chat = true };
    kernels_wait_passively(argv);
    return cmd_main(&(struct cmd_main){ &program, &args, run }, argc, argv);
}
