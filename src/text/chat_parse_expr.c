/* Expressions are read by descent, in the order in which Jinja's operators
 * bind: if-else, or, and, not, comparisons, + and -, ~, products, minus, then
 * what follows a value: . [] () | is. */
#include "src/text/chat_parse_expr.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static enum err chat_parse_unary(struct chat_parse *parse,
                                 struct chat_node **out);

static bool chat_parse_sign(const struct chat_parse *parse, const char *sign)
{
    return chat_lex_is(parse->word, CHAT_LEX_SIGN, sign);
}

static bool chat_parse_name(const struct chat_parse *parse, const char *name)
{
    return chat_lex_is(parse->word, CHAT_LEX_NAME, name);
}

bool chat_parse_expr_take(struct chat_parse *parse, const char *sign)
{
    bool there = chat_parse_sign(parse, sign);
    parse->word += there;
    return there;
}

bool chat_parse_expr_take_name(struct chat_parse *parse, const char *name)
{
    bool there = chat_parse_name(parse, name);
    parse->word += there;
    return there;
}

enum err chat_parse_expr_refuse(const struct chat_parse *parse,
                                const char *want)
{
    const struct chat_lex_word *word = parse->word;
    int shown = word->bytes < 40 ? (int)word->bytes : 40;
    if (word->kind == CHAT_LEX_END)
        return err_set(ERR_DATA,
                       "line %d: the template ends where %s "
                       "should follow",
                       word->line, want);
    return err_set(ERR_DATA, "line %d: %s%.*s where %s should follow",
                   word->line, word->kind == CHAT_LEX_DATA ? "text: " : "",
                   shown, word->text, want);
}

enum err chat_parse_expr_need(struct chat_parse *parse, const char *sign)
{
    char want[8] = "'";
    if (chat_parse_expr_take(parse, sign))
        return ERR_OK;
    strncat(want, sign, 4);
    strcat(want, "'");
    return chat_parse_expr_refuse(parse, want);
}

static int chat_parse_depth(const struct chat_node *node)
{
    return node != NULL ? node->depth : 0;
}

/* A node over a and b, at the line of `word`, with its text. */
enum err chat_parse_expr_make(struct chat_parse *parse,
                              enum chat_node_kind kind,
                              const struct chat_lex_word *word,
                              struct chat_node *a, struct chat_node *b,
                              struct chat_node **out)
{
    struct chat_node *node = calloc(1, sizeof *node);
    if (node == NULL)
        return err_set(ERR_MEMORY, "no memory for a template");
    node->made = parse->tree->made;
    parse->tree->made = node;
    int below = chat_parse_depth(a) > chat_parse_depth(b) ? chat_parse_depth(a)
                                                          : chat_parse_depth(b);
    node->kind = kind;
    node->line = word->line;
    node->text = word->text;
    node->bytes = word->bytes;
    node->value = word->value;
    node->a = a;
    node->b = b;
    node->depth = below + 1;
    *out = node;
    if (node->depth <= CHAT_PARSE_DEPTH_MAX)
        return ERR_OK;
    return err_set(ERR_DATA, "line %d: more than %d levels of expressions",
                   word->line, CHAT_PARSE_DEPTH_MAX);
}

/* Down a level of brackets or blocks, which the stack has to hold. */
enum err chat_parse_expr_down(struct chat_parse *parse)
{
    if (++parse->depth <= CHAT_PARSE_DEPTH_MAX)
        return ERR_OK;
    return err_set(ERR_DATA,
                   "line %d: more than %d levels of brackets or "
                   "blocks",
                   parse->word->line, CHAT_PARSE_DEPTH_MAX);
}

/* Values up to the closing sign, and with it. named: name=value is allowed. */
static enum err chat_parse_arguments(struct chat_parse *parse,
                                     const char *close, bool named,
                                     struct chat_node **out)
{
    struct chat_node **last = out, *value = NULL;
    *out = NULL;
    while (!chat_parse_expr_take(parse, close)) {
        const struct chat_lex_word *first = parse->word;
        bool has_name = named && first->kind == CHAT_LEX_NAME &&
                        chat_lex_is(first + 1, CHAT_LEX_SIGN, "=");
        parse->word += has_name ? 2 : 0;
        TRY(chat_parse_expr_read(parse, &value));
        TRY(chat_parse_expr_make(parse, CHAT_NODE_ARGUMENT, first, value, NULL,
                                 last));
        if (!has_name)
            (*last)->bytes = 0;
        last = &(*last)->next;
        if (!chat_parse_sign(parse, close))
            TRY(chat_parse_expr_need(parse, ","));
    }
    /* the list is as deep as its deepest value */
    if (*out != NULL)
        for (struct chat_node *node = (*out)->next; node != NULL;
             node = node->next)
            if (node->depth > (*out)->depth)
                (*out)->depth = node->depth;
    return ERR_OK;
}

/* In parentheses: one value, or several, which are a list here. */
static enum err chat_parse_parentheses(struct chat_parse *parse,
                                       struct chat_node **out)
{
    const struct chat_lex_word *first = parse->word - 1;
    struct chat_node *items = NULL, *rest = NULL;
    if (!chat_parse_sign(parse, ")")) {
        TRY(chat_parse_expr_read(parse, out));
        if (chat_parse_expr_take(parse, ")"))
            return ERR_OK;
        TRY(chat_parse_expr_need(parse, ","));
        TRY(chat_parse_expr_make(parse, CHAT_NODE_ARGUMENT, first, *out, NULL,
                                 &items));
        items->bytes = 0;
        TRY(chat_parse_arguments(parse, ")", false, &rest));
        items->next = rest;
        if (chat_parse_depth(rest) > items->depth)
            items->depth = rest->depth;
    } else {
        parse->word++;
    }
    return chat_parse_expr_make(parse, CHAT_NODE_LIST, first, items, NULL, out);
}

static enum err chat_parse_constant(struct chat_parse *parse,
                                    struct chat_node **out)
{
    static const struct {
        const char *name;
        enum chat_node_kind kind;
        int64_t value;
    } constants[] = {
        { "true", CHAT_NODE_BOOLEAN, 1 },  { "True", CHAT_NODE_BOOLEAN, 1 },
        { "false", CHAT_NODE_BOOLEAN, 0 }, { "False", CHAT_NODE_BOOLEAN, 0 },
        { "none", CHAT_NODE_NONE, 0 },     { "None", CHAT_NODE_NONE, 0 },
    };
    const struct chat_lex_word *word = parse->word++;
    for (size_t c = 0; c < sizeof constants / sizeof *constants; c++)
        if (chat_lex_is(word, CHAT_LEX_NAME, constants[c].name)) {
            TRY(chat_parse_expr_make(parse, constants[c].kind, word, NULL, NULL,
                                     out));
            (*out)->value = constants[c].value;
            return ERR_OK;
        }
    return chat_parse_expr_make(parse, CHAT_NODE_NAME, word, NULL, NULL, out);
}

static enum err chat_parse_value(struct chat_parse *parse,
                                 struct chat_node **out)
{
    const struct chat_lex_word *word = parse->word;
    struct chat_node *items = NULL;
    switch (word->kind) {
    case CHAT_LEX_STRING:
        parse->word++;
        return chat_parse_expr_make(parse, CHAT_NODE_STRING, word, NULL, NULL,
                                    out);
    case CHAT_LEX_INTEGER:
        parse->word++;
        return chat_parse_expr_make(parse, CHAT_NODE_INTEGER, word, NULL, NULL,
                                    out);
    case CHAT_LEX_NAME:
        return chat_parse_constant(parse, out);
    default:
        break;
    }
    if (chat_parse_expr_take(parse, "("))
        return chat_parse_parentheses(parse, out);
    if (chat_parse_expr_take(parse, "[")) {
        TRY(chat_parse_arguments(parse, "]", false, &items));
        return chat_parse_expr_make(parse, CHAT_NODE_LIST, word, items, NULL,
                                    out);
    }
    if (chat_parse_sign(parse, "{"))
        return err_set(ERR_DATA,
                       "line %d: '{', a dictionary, is not known "
                       "here",
                       word->line);
    return chat_parse_expr_refuse(parse, "a value");
}

/* What stands in a[...]. */
static enum err chat_parse_item(struct chat_parse *parse,
                                struct chat_node **out)
{
    const struct chat_lex_word *word = parse->word - 1;
    struct chat_node *part[3] = { NULL }, *of = *out;
    int parts = 0;
    bool slice = false;
    while (!chat_parse_expr_take(parse, "]")) {
        if (parts < 2 && chat_parse_expr_take(parse, ":")) {
            slice = true;
            parts++;
            continue;
        }
        if (part[parts] != NULL)
            return chat_parse_expr_refuse(parse, "']'");
        TRY(chat_parse_expr_read(parse, &part[parts]));
    }
    if (!slice && part[0] == NULL) {
        parse->word--;
        return chat_parse_expr_refuse(parse, "a value");
    }
    TRY(chat_parse_expr_make(parse, slice ? CHAT_NODE_SLICE : CHAT_NODE_ITEM,
                             word, of, part[0], out));
    (*out)->c = part[1];
    (*out)->d = part[2];
    for (int p = 1; p < 3; p++)
        if (chat_parse_depth(part[p]) >= (*out)->depth)
            (*out)->depth = part[p]->depth + 1;
    return ERR_OK;
}

static enum err chat_parse_test(struct chat_parse *parse,
                                struct chat_node **out)
{
    static const char *const tests[] = {
        "defined", "undefined", "none",    "string",   "number",   "boolean",
        "true",    "false",     "mapping", "iterable", "sequence", "integer",
    };
    bool negated = chat_parse_expr_take_name(parse, "not");
    const struct chat_lex_word *word = parse->word;
    bool known = false;
    for (size_t t = 0; t < sizeof tests / sizeof *tests; t++)
        known = known || chat_lex_is(word, CHAT_LEX_NAME, tests[t]);
    if (!known && word->kind == CHAT_LEX_NAME)
        return err_set(ERR_DATA,
                       "line %d: the test 'is %.*s' is not known "
                       "here",
                       word->line, word->bytes < 40 ? (int)word->bytes : 40,
                       word->text);
    if (!known)
        return chat_parse_expr_refuse(parse, "a test's name");
    parse->word++;
    TRY(chat_parse_expr_make(parse, CHAT_NODE_TEST, word, *out, NULL, out));
    return negated ? chat_parse_expr_make(parse, CHAT_NODE_NOT, word, *out,
                                          NULL, out)
                   : ERR_OK;
}

/* A value and what follows it. filters: | and is may, too. */
static enum err chat_parse_postfix(struct chat_parse *parse, bool filters,
                                   struct chat_node **out)
{
    TRY(chat_parse_expr_down(parse));
    TRY(chat_parse_value(parse, out));
    for (;;) {
        const struct chat_lex_word *word = parse->word;
        struct chat_node *arguments = NULL;
        if (chat_parse_expr_take(parse, ".")) {
            word = parse->word++;
            if (word->kind != CHAT_LEX_NAME) {
                parse->word--;
                return chat_parse_expr_refuse(parse, "a name");
            }
            TRY(chat_parse_expr_make(parse, CHAT_NODE_ATTRIBUTE, word, *out,
                                     NULL, out));
        } else if (chat_parse_expr_take(parse, "[")) {
            TRY(chat_parse_item(parse, out));
        } else if (chat_parse_expr_take(parse, "(")) {
            TRY(chat_parse_arguments(parse, ")", true, &arguments));
            TRY(chat_parse_expr_make(parse, CHAT_NODE_CALL, word, *out,
                                     arguments, out));
        } else if (filters && chat_parse_expr_take(parse, "|")) {
            word = parse->word++;
            if (word->kind != CHAT_LEX_NAME) {
                parse->word--;
                return chat_parse_expr_refuse(parse, "a filter's name");
            }
            if (chat_parse_expr_take(parse, "("))
                TRY(chat_parse_arguments(parse, ")", true, &arguments));
            TRY(chat_parse_expr_make(parse, CHAT_NODE_FILTER, word, *out,
                                     arguments, out));
        } else if (filters && chat_parse_expr_take_name(parse, "is")) {
            TRY(chat_parse_test(parse, out));
        } else {
            break;
        }
    }
    parse->depth--;
    return ERR_OK;
}

static enum err chat_parse_unary(struct chat_parse *parse,
                                 struct chat_node **out)
{
    const struct chat_lex_word *word = parse->word;
    if (!chat_parse_expr_take(parse, "-"))
        return chat_parse_postfix(parse, true, out);
    TRY(chat_parse_postfix(parse, true, out));
    return chat_parse_expr_make(parse, CHAT_NODE_MINUS, word, *out, NULL, out);
}

/* The operators of one rank, the loosest first; what they join has the next. */
static const char *const chat_parse_ranks[][9] = {
    { "==", "!=", "<", ">", "<=", ">=", "in" },
    { "+", "-" },
    { "~" },
    { "*", "/", "//", "%", "**" },
};
#define CHAT_PARSE_RANKS (sizeof chat_parse_ranks / sizeof *chat_parse_ranks)

static bool chat_parse_operator(const struct chat_parse *parse, size_t rank)
{
    for (int i = 0; chat_parse_ranks[rank][i] != NULL; i++)
        if (chat_parse_sign(parse, chat_parse_ranks[rank][i]) ||
            (rank == 0 && chat_parse_name(parse, chat_parse_ranks[rank][i])))
            return true;
    return false;
}

static enum err chat_parse_binary(struct chat_parse *parse, size_t rank,
                                  struct chat_node **out)
{
    if (rank == CHAT_PARSE_RANKS)
        return chat_parse_unary(parse, out);
    TRY(chat_parse_binary(parse, rank + 1, out));
    for (int count = 0;; count++) {
        struct chat_node *right = NULL;
        bool not_in = rank == 0 && chat_parse_name(parse, "not") &&
                      chat_lex_is(parse->word + 1, CHAT_LEX_NAME, "in");
        if (!not_in && !chat_parse_operator(parse, rank))
            return ERR_OK;
        parse->word += not_in;
        const struct chat_lex_word *word = parse->word++;
        if (rank == 0 && count > 0)
            return err_set(ERR_DATA,
                           "line %d: a chain of comparisons is not "
                           "known here",
                           word->line);
        TRY(chat_parse_binary(parse, rank + 1, &right));
        TRY(chat_parse_expr_make(parse, CHAT_NODE_BINARY, word, *out, right,
                                 out));
        if (not_in)
            TRY(chat_parse_expr_make(parse, CHAT_NODE_NOT, word, *out, NULL,
                                     out));
    }
}

static enum err chat_parse_not(struct chat_parse *parse, struct chat_node **out)
{
    const struct chat_lex_word *word = parse->word;
    if (!chat_parse_expr_take_name(parse, "not"))
        return chat_parse_binary(parse, 0, out);
    TRY(chat_parse_expr_down(parse));
    TRY(chat_parse_not(parse, out));
    parse->depth--;
    return chat_parse_expr_make(parse, CHAT_NODE_NOT, word, *out, NULL, out);
}

static enum err chat_parse_and(struct chat_parse *parse, struct chat_node **out)
{
    struct chat_node *right = NULL;
    TRY(chat_parse_not(parse, out));
    while (chat_parse_name(parse, "and")) {
        const struct chat_lex_word *word = parse->word++;
        TRY(chat_parse_not(parse, &right));
        TRY(chat_parse_expr_make(parse, CHAT_NODE_AND, word, *out, right, out));
    }
    return ERR_OK;
}

enum err chat_parse_expr_or(struct chat_parse *parse, struct chat_node **out)
{
    struct chat_node *right = NULL;
    TRY(chat_parse_and(parse, out));
    while (chat_parse_name(parse, "or")) {
        const struct chat_lex_word *word = parse->word++;
        TRY(chat_parse_and(parse, &right));
        TRY(chat_parse_expr_make(parse, CHAT_NODE_OR, word, *out, right, out));
    }
    return ERR_OK;
}

enum err chat_parse_expr_read(struct chat_parse *parse, struct chat_node **out)
{
    struct chat_node *condition = NULL, *other = NULL;
    TRY(chat_parse_expr_down(parse));
    TRY(chat_parse_expr_or(parse, out));
    if (chat_parse_name(parse, "if")) {
        const struct chat_lex_word *word = parse->word++;
        TRY(chat_parse_expr_or(parse, &condition));
        if (chat_parse_expr_take_name(parse, "else"))
            TRY(chat_parse_expr_read(parse, &other));
        TRY(chat_parse_expr_make(parse, CHAT_NODE_CONDITIONAL, word, *out,
                                 condition, out));
        (*out)->c = other;
        if (chat_parse_depth(other) >= (*out)->depth)
            (*out)->depth = other->depth + 1;
    }
    parse->depth--;
    return ERR_OK;
}
