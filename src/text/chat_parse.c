/* Statements of a template. */
#include "src/text/chat_parse.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/text/chat_parse_expr.h"

static enum err chat_parse_close(struct chat_parse *parse)
{
    if (parse->word->kind != CHAT_LEX_BLOCK_CLOSE)
        return chat_parse_expr_refuse(parse, "'%}'");
    parse->word++;
    return ERR_OK;
}

static enum err chat_parse_body(struct chat_parse *parse,
                                struct chat_node **out);

/* {% NAME %}, which ends a block */
static enum err chat_parse_end(struct chat_parse *parse, const char *name,
                               const struct chat_lex_word *begin)
{
    if (parse->word->kind == CHAT_LEX_END)
        return err_set(ERR_DATA, "line %d: '%.*s' without its '%s'",
                       begin->line, (int)begin->bytes, begin->text, name);
    parse->word++; /* {% */
    if (!chat_parse_expr_take_name(parse, name))
        return chat_parse_expr_refuse(parse, name);
    return chat_parse_close(parse);
}

/* Behind "if" or "elif". */
static enum err chat_parse_if(struct chat_parse *parse,
                              const struct chat_lex_word *begin,
                              struct chat_node **out)
{
    struct chat_node *condition = NULL, *then = NULL, *other = NULL;
    TRY(chat_parse_expr_down(parse));
    TRY(chat_parse_expr_read(parse, &condition));
    TRY(chat_parse_close(parse));
    TRY(chat_parse_body(parse, &then));
    const struct chat_lex_word *word = parse->word;
    bool more = false;
    if (word->kind == CHAT_LEX_BLOCK &&
        chat_lex_is(word + 1, CHAT_LEX_NAME, "elif")) {
        parse->word += 2;
        TRY(chat_parse_if(parse, begin, &other));
        more = true;
    } else if (word->kind == CHAT_LEX_BLOCK &&
               chat_lex_is(word + 1, CHAT_LEX_NAME, "else")) {
        parse->word += 2;
        TRY(chat_parse_close(parse));
        TRY(chat_parse_body(parse, &other));
    }
    TRY(chat_parse_expr_make(parse, CHAT_NODE_IF, begin, condition, then, out));
    (*out)->c = other;
    parse->depth--;
    return more ? ERR_OK : chat_parse_end(parse, "endif", begin);
}

static enum err chat_parse_for(struct chat_parse *parse, struct chat_node **out)
{
    const struct chat_lex_word *begin = parse->word - 1;
    const struct chat_lex_word *name = parse->word;
    struct chat_node *list = NULL, *body = NULL, *filter = NULL;
    if (name->kind != CHAT_LEX_NAME)
        return chat_parse_expr_refuse(parse, "a variable");
    parse->word++;
    if (!chat_parse_expr_take_name(parse, "in"))
        return chat_parse_expr_refuse(parse, "'in'");
    TRY(chat_parse_expr_or(parse, &list));
    if (chat_parse_expr_take_name(parse, "if"))
        TRY(chat_parse_expr_read(parse, &filter));
    TRY(chat_parse_close(parse));
    TRY(chat_parse_body(parse, &body));
    if (parse->word->kind == CHAT_LEX_BLOCK &&
        chat_lex_is(parse->word + 1, CHAT_LEX_NAME, "else"))
        return err_set(ERR_DATA,
                       "line %d: 'else' of a 'for' is not known "
                       "here",
                       parse->word->line);
    TRY(chat_parse_expr_make(parse, CHAT_NODE_FOR, name, list, body, out));
    (*out)->c = filter;
    return chat_parse_end(parse, "endfor", begin);
}

static enum err chat_parse_set(struct chat_parse *parse, struct chat_node **out)
{
    const struct chat_lex_word *name = parse->word++;
    struct chat_node *value = NULL, *attribute = NULL;
    if (name->kind != CHAT_LEX_NAME) {
        parse->word--;
        return chat_parse_expr_refuse(parse, "a variable");
    }
    if (chat_parse_expr_take(parse, ".")) {
        if (parse->word->kind != CHAT_LEX_NAME)
            return chat_parse_expr_refuse(parse, "a name");
        TRY(chat_parse_expr_make(parse, CHAT_NODE_ATTRIBUTE, parse->word++,
                                 NULL, NULL, &attribute));
    }
    TRY(chat_parse_expr_need(parse, "="));
    TRY(chat_parse_expr_read(parse, &value));
    TRY(chat_parse_close(parse));
    return chat_parse_expr_make(parse, CHAT_NODE_SET, name, value, attribute,
                                out);
}

static enum err chat_parse_statement(struct chat_parse *parse,
                                     struct chat_node **out)
{
    const struct chat_lex_word *word = parse->word++;
    if (word->kind == CHAT_LEX_DATA)
        return chat_parse_expr_make(parse, CHAT_NODE_DATA, word, NULL, NULL,
                                    out);
    if (word->kind == CHAT_LEX_PRINT) {
        struct chat_node *value = NULL;
        TRY(chat_parse_expr_read(parse, &value));
        if (parse->word->kind != CHAT_LEX_PRINT_CLOSE)
            return chat_parse_expr_refuse(parse, "'}}'");
        parse->word++;
        return chat_parse_expr_make(parse, CHAT_NODE_PRINT, word, value, NULL,
                                    out);
    }
    word = parse->word;
    if (chat_parse_expr_take_name(parse, "if"))
        return chat_parse_if(parse, word, out);
    if (chat_parse_expr_take_name(parse, "for"))
        return chat_parse_for(parse, out);
    if (chat_parse_expr_take_name(parse, "set"))
        return chat_parse_set(parse, out);
    return err_set(ERR_DATA,
                   "line %d: the statement '%.*s' is not known here; "
                   "there are: for, if, set",
                   word->line, word->bytes < 40 ? (int)word->bytes : 40,
                   word->text);
}

/* Statements up to one that ends or divides a block, or the end. */
static enum err chat_parse_body(struct chat_parse *parse,
                                struct chat_node **out)
{
    static const char *const ends[] = { "elif", "else", "endif", "endfor" };
    struct chat_node **last = out;
    *out = NULL;
    TRY(chat_parse_expr_down(parse));
    for (;;) {
        const struct chat_lex_word *word = parse->word;
        bool end = word->kind == CHAT_LEX_END;
        for (size_t e = 0; e < sizeof ends / sizeof *ends; e++)
            end = end || (word->kind == CHAT_LEX_BLOCK &&
                          chat_lex_is(word + 1, CHAT_LEX_NAME, ends[e]));
        if (end)
            break;
        TRY(chat_parse_statement(parse, last));
        last = &(*last)->next;
    }
    parse->depth--;
    return ERR_OK;
}

enum err chat_parse_read(const char *text, size_t bytes, struct chat_tree *out)
{
    assert(text != NULL && out != NULL);
    enum err rc = ERR_OK;
    *out = (struct chat_tree){ .made = NULL };
    TRY(chat_lex_read(text, bytes, &out->lex));
    struct chat_parse parse = { out, out->lex.word, 0 };
    TRY_OUT(chat_parse_body(&parse, &out->body));
    if (parse.word->kind != CHAT_LEX_END) {
        parse.word++;
        rc =
            err_set(ERR_DATA, "line %d: '%.*s' without its beginning",
                    parse.word->line, (int)parse.word->bytes, parse.word->text);
    }
out:
    if (rc != ERR_OK)
        chat_parse_release(out);
    return rc;
}

void chat_parse_release(struct chat_tree *tree)
{
    while (tree->made != NULL) {
        struct chat_node *node = tree->made;
        tree->made = node->made;
        free(node);
    }
    chat_lex_release(&tree->lex);
    tree->body = NULL;
}
