/* tessera-chat MODEL: a conversation, on a terminal or from a pipe. Answers go to
 * standard output and all else to standard error, so that a pipe has the model's
 * words alone.
 *
 * Lines and signals are read at the same time: SIGINT is blocked and read from a
 * descriptor, so that there is no handler and no global. poll() waits for both;
 * while the model computes nobody waits, and whoever computes asks between two
 * calls (interrupted()). The mask is inherited, so it is set before the threads of
 * the kernels are there, or one of them would get the signal and end the program. */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "src/base/array.h"
#include "src/base/fsio.h"
#include "src/base/log.h"
#include "src/cmd/chat_edit.h"
#include "src/cmd/cmd_main.h"
#include "src/generate/chat_talk.h"
#include "src/generate/generate_engine.h"
#include "src/generate/generate_texts.h"

#define READ_BYTES 65536
#define LINE_BYTES_MAX ((size_t)64 << 20)

enum line_got {
    LINE_TEXT,
    LINE_INTERRUPTED, /* Ctrl-C: what was typed is gone */
    LINE_END          /* of the input */
};

struct line {
    int signals; /* -1: not open */
    bool terminal, ended;
    struct chat_edit *edit; /* NULL: lines come as the terminal gives them */
    enum line_got got;      /* while it edits, and what has failed then */
    enum err failed;
    struct buffer read; /* not taken yet */
    struct buffer line; /* what was lent */
};

static enum err line_open(struct line *line)
{
    static const int edited[] = { SIGWINCH, SIGTSTP, SIGTERM, SIGHUP, SIGQUIT };
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    line->terminal = isatty(STDIN_FILENO) == 1;
    for (size_t i = 0; i < sizeof edited / sizeof *edited; i++)
        if (chat_edit_can()) /* they meet a terminal that is not as it was */
            sigaddset(&set, edited[i]);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    line->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return line->signals >= 0 ? ERR_OK : err_errno("signalfd");
}

static void line_close(struct line *line)
{
    fsio_close(line->signals);
    chat_edit_destroy(line->edit);
    buffer_free(&line->read);
    buffer_free(&line->line);
}

/* Has Ctrl-C come since it was asked last, or a read had it? */
static bool line_interrupted(struct line *line)
{
    struct signalfd_siginfo info;
    bool came = false;
    while (read(line->signals, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.ssi_signo == SIGINT)
            came = true;
        else
            chat_edit_signal(line->edit, (int)info.ssi_signo);
    return came;
}

/* More input, or what ends it; *got stays LINE_TEXT as long as it goes on. */
static enum err line_wait(struct line *line, enum line_got *got)
{
    struct pollfd of[2] = { { .fd = line->signals, .events = POLLIN },
                            { .fd = STDIN_FILENO, .events = POLLIN } };
    if (poll(of, 2, -1) < 0)
        return errno == EINTR ? ERR_OK : err_errno("standard input: poll");
    if (line_interrupted(line)) {
        *got = LINE_INTERRUPTED;
        return ERR_OK;
    }
    if (of[1].revents == 0)
        return ERR_OK;
    if (line->read.bytes > LINE_BYTES_MAX)
        return err_set(ERR_USAGE,
                       "standard input: a line of more than %zu bytes",
                       LINE_BYTES_MAX);
    TRY(buffer_reserve(&line->read, READ_BYTES));
    ssize_t length =
        read(STDIN_FILENO, line->read.data + line->read.bytes, READ_BYTES);
    if (length < 0)
        return errno == EINTR ? ERR_OK : err_errno("standard input");
    line->read.bytes += (size_t)length;
    line->ended = length == 0;
    return ERR_OK;
}

/* Takes the first line off what was read; all of it at the end of the input. */
static enum err line_take(struct line *line, size_t *bytes)
{
    struct buffer *input = &line->read;
    const uint8_t *end =
        input->bytes > 0 ? memchr(input->data, '\n', input->bytes) : NULL;
    *bytes = end != NULL ? (size_t)(end - input->data) : input->bytes;
    size_t taken = *bytes + (end != NULL);
    assert(taken <= input->bytes && (end != NULL || line->ended));
    TRY(buffer_add(&line->line, input->data, *bytes));
    if (taken > 0)
        memmove(input->data, input->data + taken, input->bytes - taken);
    input->bytes -= taken;
    return ERR_OK;
}

/* For the editor: the next byte, unless the line ends otherwise. */
static int line_byte(void *arg)
{
    struct line *line = arg;
    struct buffer *input = &line->read;
    while (input->bytes == 0 && !line->ended && line->got == LINE_TEXT &&
           line->failed == ERR_OK)
        line->failed = line_wait(line, &line->got);
    if (input->bytes == 0 || line->got != LINE_TEXT)
        return -1;
    uint8_t byte = input->data[0];
    memmove(input->data, input->data + 1, --input->bytes);
    return byte;
}

static enum err line_edited(struct line *line, const char *prompt,
                            enum line_got *got, size_t *bytes)
{
    *bytes = 0;
    line->got = LINE_TEXT;
    const char *text = chat_edit_line(line->edit, prompt, bytes);
    *got = line->got;
    line->ended |= text == NULL && line->got == LINE_TEXT;
    TRY(line->failed);
    return text != NULL ? buffer_add(&line->line, text, *bytes) : ERR_OK;
}

static enum err line_plain(struct line *line, const char *prompt,
                           enum line_got *got, size_t *bytes)
{
    const struct buffer *input = &line->read;
    if (line->terminal)
        fputs(prompt, stderr);
    while (
        !line->ended && *got == LINE_TEXT &&
        (input->bytes == 0 || memchr(input->data, '\n', input->bytes) == NULL))
        TRY(line_wait(line, got));
    return *got == LINE_TEXT ? line_take(line, bytes) : ERR_OK;
}

/* The next line of standard input, without its end, lent until the next call.
 *
 * Lines are put together until one does not end with a backslash, which becomes
 * the line's end that it stands for. What was typed before Ctrl-C is dropped, also
 * whole lines of the same message. */
static enum err line_read(struct line *line, const char *prompt,
                          enum line_got *got, const char **text, size_t *bytes)
{
    size_t taken = 0;
    bool goes_on = true;
    *got = LINE_TEXT;
    line->line.bytes = 0;
    for (; goes_on; prompt = "... ") {
        TRY((line->edit != NULL ? line_edited : line_plain)(line, prompt, got,
                                                            &taken));
        if (*got != LINE_TEXT) {
            line->read.bytes = 0;
            return ERR_OK;
        }
        goes_on = taken > 0 && !line->ended &&
                  line->line.data[line->line.bytes - 1] == '\\';
        if (goes_on)
            line->line.data[line->line.bytes - 1] = '\n';
    }
    if (line->ended && line->line.bytes == 0)
        *got = LINE_END;
    TRY(buffer_add(&line->line, "", 1));
    *text = (const char *)line->line.data;
    *bytes = line->line.bytes - 1;
    return ERR_OK;
}

/* Without --context: more would take memory that few conversations need. */
#define CONTEXT 8192
#define TEMPERATURE 0.7
#define TOP_P 0.9

struct chat {
    struct generate_engine engine;
    struct line line;
    struct chat_talk *talk;
};

static bool interrupted(void *arg)
{
    struct chat *chat = arg;
    return line_interrupted(&chat->line);
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
        enum line_got got;
        const char *text = NULL;
        size_t bytes = 0;
        TRY(line_read(&chat->line, "> ", &got, &text, &bytes));
        if (got == LINE_END)
            break;
        if (got == LINE_INTERRUPTED)
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
    struct chat chat = { .line.signals = -1 };
    struct sample_options otherwise = sample_options_default;
    otherwise.temperature = TEMPERATURE;
    otherwise.top_p = TOP_P;
    (void)exit_code;
    TRY(generate_args_check(options));
    TRY_OUT(comm_create("self", NULL, NULL, 60.0, &chat.engine.comm));
    TRY_OUT(line_open(&chat.line));
    TRY_OUT(generate_engine_open(options->into, &otherwise, &chat.engine));
    TRY_OUT(start(&chat));
    chat.line.edit = chat_edit_create(line_byte, &chat.line);
    TRY_OUT(talk(&chat));
out:
    chat_talk_destroy(chat.talk);
    struct comm *comm = chat.engine.comm;
    generate_engine_close(&chat.engine);
    comm_destroy(comm);
    line_close(&chat.line);
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
