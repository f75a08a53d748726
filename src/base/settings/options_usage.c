/* Prints --help from the rows of options: how each command is called, then each
 * table of rows once, however many commands share it. Texts are wrapped at 80
 * columns, with names in a column as wide as the longest that is not too long.
 */
#include "src/base/settings/options_private.h"

#include <string.h>

#define WIDTH 80
#define HEAD_BYTES 128
#define HEAD_MAX 24    /* a longer one has a line for itself */
#define BRACKETS_MAX 4 /* more options are [OPTION]... */

/* "--NAME VALUE"; its length. */
static int head_text(const struct options_row *row, char text[HEAD_BYTES])
{
    int used = snprintf(text, HEAD_BYTES, "--%s", row->name);
    if (row->value != NULL)
        used +=
            snprintf(text + used, HEAD_BYTES - (size_t)used, " %s", row->value);
    for (int i = 0; row->choices != NULL && row->choices[i] != NULL; i++)
        used += snprintf(text + used, HEAD_BYTES - (size_t)used, "%c%s",
                         i == 0 ? ' ' : '|', row->choices[i]);
    return used;
}

/* The text from `column` on, where the line is at `at` now. */
static void put_wrapped(const char *text, int column, int at, FILE *out)
{
    while (*text != '\0') {
        int length = (int)strcspn(text, " ");
        if (at < column) {
            fprintf(out, "%*s", column - at, "");
            at = column;
        } else if (at > column && at + 1 + length >= WIDTH) {
            fprintf(out, "\n%*s", column, "");
            at = column;
        } else if (at > column) {
            fputc(' ', out);
            at++;
        }
        fprintf(out, "%.*s", length, text);
        at += length;
        text += length;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

/* Is it an option of any command that has these rows, or a text between? */
static bool is_shown(const struct options_program *program,
                     const struct options_row *rows,
                     const struct options_row *row)
{
    bool shown = row->name == NULL;
    for (size_t i = 0; i < program->count; i++) {
        const struct options_command *command = options_command_at(program, i);
        shown = shown || (command->rows == rows &&
                          options_chosen(command->choice, row->name) != NULL);
    }
    return shown;
}

/* Where the texts begin: behind the longest name that leaves them room. */
static int column_of(const struct options_row *rows)
{
    char text[HEAD_BYTES];
    int column = 0;
    for (const struct options_row *row = rows; options_row_is(row); row++) {
        int length = row->name != NULL ? head_text(row, text) : 0;
        if (length > column && length <= HEAD_MAX)
            column = length;
    }
    return column + 4;
}

/* A name that reaches into the column has a line for itself, as in the manuals of
 * GNU's programs. */
static void put_rows(const struct options_program *program,
                     const struct options_row *rows, FILE *out)
{
    char text[HEAD_BYTES];
    int column = column_of(rows);
    fputc('\n', out);
    for (const struct options_row *row = rows; options_row_is(row); row++) {
        if (!is_shown(program, rows, row))
            continue;
        if (row->name == NULL) {
            fprintf(out, "%s%s\n", row > rows ? "\n" : "", row->help);
            continue;
        }
        int length = head_text(row, text);
        fprintf(out, "  %s", text);
        if (length + 4 > column)
            fputc('\n', out);
        put_wrapped(row->help, column, length + 4 > column ? 0 : length + 2,
                    out);
    }
}

/* "--keep K|--keep-every M" of "keep|keep-every!"; then, in brackets, those that
 * need not be given. */
static void put_synopsis(const struct options_command *command, FILE *out)
{
    char text[HEAD_BYTES], optional[BRACKETS_MAX * (HEAD_BYTES + 3)] = "";
    int count = 0;
    for (const struct options_row *row = command->rows;
         row != NULL && options_row_is(row); row++) {
        const char *word = row->name != NULL
                               ? options_chosen(command->choice, row->name)
                               : NULL;
        if (word == NULL)
            continue;
        head_text(row, text);
        if (options_must(word))
            fprintf(out, "%c%s",
                    word > command->choice && word[-1] == '|' ? '|' : ' ',
                    text);
        else if (++count <= BRACKETS_MAX)
            snprintf(optional + strlen(optional),
                     sizeof optional - strlen(optional), " [%s]", text);
    }
    fputs(count > BRACKETS_MAX ? " [OPTION]..." : optional, out);
}

static void put_command(const struct options_program *program,
                        const struct options_command *command, bool first,
                        FILE *out)
{
    fprintf(out, "%s tessera-%s", first ? "usage:" : "      ", program->name);
    if (command->name != NULL)
        fprintf(out, " %s", command->name);
    if (command->operands != NULL && command->operands[0] != '\0')
        fprintf(out, " %s", command->operands);
    put_synopsis(command, out);
    fputc('\n', out);
    if (command->help != NULL)
        put_wrapped(command->help, 10, 0, out);
}

/* Tables that several commands share are compared by address: the order is that of
 * the first command of each. */
void options_usage(const struct options_program *program, FILE *out)
{
    for (size_t i = 0; i < program->count; i++)
        put_command(program, options_command_at(program, i), i == 0, out);
    fprintf(out, "       tessera-%s --help | --version\n\n%s", program->name,
            program->about);
    for (size_t i = 0; i < program->count; i++) {
        const struct options_row *rows = options_command_at(program, i)->rows;
        size_t before = 0;
        while (before < i && options_command_at(program, before)->rows != rows)
            before++;
        if (before == i && rows != NULL && options_row_is(rows))
            put_rows(program, rows, out);
    }
    if (program->end != NULL)
        fprintf(out, "\n%s", program->end);
    if (program->more != NULL)
        program->more(out);
}
