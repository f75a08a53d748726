/* Values of expressions, and what follows them: . [] () | is. Their operators
 * are in chat_parse_operator.c.
 *
 * What follows a value is read in a loop, from left to right, each step with
 * the tree so far as its first part: a.b[c](d) is ((a.b)[c])(d). In Jinja
 * filters and tests are such steps, too, and bind more tightly than all
 * operators. Who thinks of shells is surprised by it: {{ a ~ b | trim }} trims
 * b alone, and 1 + x | length adds to a length. Templates are written by that
 * rule, and so built-in ones have no parentheses around message.content | trim.
 *
 * A test may have one value behind its name without parentheses, x is
 * divisibleby 3; so whatever could go on the expression, `and` or `else`, is no
 * such value. */
#include "src/text/chat/chat_parse_impl.h"

#include <assert.h>
#include <string.h>

#include "src/base/new.h"

bool chat_parse_expr_take(struct chat_parse *parse, const char *sign)
{
    bool there = chat_parse_expr_sees(parse, sign);
    parse->word += there;
    return there;
}

bool chat_parse_expr_take_name(struct chat_parse *parse, const char *name)
{
    bool there = chat_parse_expr_sees_name(parse, name);
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

/* A node over a and b, at the line of `word`, with its text. */
enum err chat_parse_expr_make(struct chat_parse *parse,
                              enum chat_node_kind kind,
                              const struct chat_lex_word *word,
                              struct chat_node *a, struct chat_node *b,
                              struct chat_node **out)
{
    struct chat_node *node = NULL;
    TRY(new_zeroed(&node, 1));
    node->made = parse->tree->made;
    parse->tree->made = node;
    int below = chat_parse_expr_depth(a) > chat_parse_expr_depth(b)
                    ? chat_parse_expr_depth(a)
                    : chat_parse_expr_depth(b);
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
        if (!chat_parse_expr_sees(parse, close))
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

static bool chat_parse_ends(const struct chat_parse *parse)
{
    return parse->word->kind == CHAT_LEX_PRINT_CLOSE ||
           parse->word->kind == CHAT_LEX_BLOCK_CLOSE ||
           chat_parse_expr_sees(parse, ")");
}

/* Commas make a tuple without parentheses wherever a whole value is wanted:
 * what is printed, set or gone over. One comma behind one value is enough. */
enum err chat_parse_expr_tuple(struct chat_parse *parse, bool condition,
                               struct chat_node **out)
{
    const struct chat_lex_word *first = parse->word;
    struct chat_node *items = NULL, **last = &items;
    int depth = 0;
    for (;;) {
        TRY(condition ? chat_parse_expr_read(parse, out)
                      : chat_parse_expr_or(parse, out));
        bool more = chat_parse_expr_take(parse, ",");
        if (!more && items == NULL)
            return ERR_OK;
        TRY(chat_parse_expr_make(parse, CHAT_NODE_ARGUMENT, first, *out, NULL,
                                 last));
        (*last)->bytes = 0;
        depth = (*last)->depth > depth ? (*last)->depth : depth;
        last = &(*last)->next;
        if (!more || chat_parse_ends(parse))
            break;
    }
    items->depth = depth;
    TRY(chat_parse_expr_make(parse, CHAT_NODE_LIST, first, items, NULL, out));
    (*out)->value = 1;
    return ERR_OK;
}

/* In parentheses: one value, or a tuple. */
static enum err chat_parse_parentheses(struct chat_parse *parse,
                                       struct chat_node **out)
{
    if (!chat_parse_expr_sees(parse, ")")) {
        TRY(chat_parse_expr_tuple(parse, true, out));
        return chat_parse_expr_need(parse, ")");
    }
    TRY(chat_parse_expr_make(parse, CHAT_NODE_LIST, parse->word++, NULL, NULL,
                             out));
    (*out)->value = 1;
    return ERR_OK;
}

/* A dictionary, behind its bracket. */
static enum err chat_parse_dict(struct chat_parse *parse,
                                struct chat_node **out)
{
    const struct chat_lex_word *first = parse->word - 1;
    struct chat_node *items = NULL, **last = &items, *value = NULL;
    int depth = 0;
    while (!chat_parse_expr_take(parse, "}")) {
        for (int part = 0; part < 2; part++) {
            TRY(part == 0 ? ERR_OK : chat_parse_expr_need(parse, ":"));
            TRY(chat_parse_expr_read(parse, &value));
            TRY(chat_parse_expr_make(parse, CHAT_NODE_ARGUMENT, first, value,
                                     NULL, last));
            depth = (*last)->depth > depth ? (*last)->depth : depth;
            last = &(*last)->next;
        }
        if (!chat_parse_expr_sees(parse, "}"))
            TRY(chat_parse_expr_need(parse, ","));
    }
    if (items != NULL)
        items->depth = depth;
    return chat_parse_expr_make(parse, CHAT_NODE_DICT, first, items, NULL, out);
}

/* A string, or several one behind the other, which are joined. */
static enum err chat_parse_strings(struct chat_parse *parse,
                                   struct chat_node **out)
{
    static const struct chat_lex_word join = { .kind = CHAT_LEX_SIGN,
                                               .text = "~",
                                               .bytes = 1 };
    TRY(chat_parse_expr_make(parse, CHAT_NODE_STRING, parse->word++, NULL, NULL,
                             out));
    while (parse->word->kind == CHAT_LEX_STRING) {
        struct chat_node *next = NULL;
        TRY(chat_parse_expr_make(parse, CHAT_NODE_STRING, parse->word++, NULL,
                                 NULL, &next));
        TRY(chat_parse_expr_make(parse, CHAT_NODE_BINARY, &join, *out, next,
                                 out));
    }
    return ERR_OK;
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
        return chat_parse_strings(parse, out);
    case CHAT_LEX_REAL:
    case CHAT_LEX_INTEGER:
        parse->word++;
        return chat_parse_expr_make(
            parse,
            word->kind == CHAT_LEX_REAL ? CHAT_NODE_REAL : CHAT_NODE_INTEGER,
            word, NULL, NULL, out);
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
    if (chat_parse_expr_take(parse, "{"))
        return chat_parse_dict(parse, out);
    return chat_parse_expr_refuse(parse, "a value");
}

/* What stands in a[...]: a key, or a slice of up to three parts with colons
 * between, any of which may be missing. */
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
        if (chat_parse_expr_depth(part[p]) >= (*out)->depth)
            (*out)->depth = part[p]->depth + 1;
    return ERR_OK;
}

/* Whether a value follows a test's name without parentheses. */
static bool chat_parse_operand(const struct chat_parse *parse)
{
    static const char *const not_names[] = { "else", "or", "and", "is",
                                             "if",   "in", "not" };
    const struct chat_lex_word *word = parse->word;
    for (size_t n = 0; n < sizeof not_names / sizeof *not_names; n++)
        if (chat_parse_expr_sees_name(parse, not_names[n]))
            return false;
    return word->kind == CHAT_LEX_NAME || word->kind == CHAT_LEX_STRING ||
           word->kind == CHAT_LEX_INTEGER || chat_parse_expr_sees(parse, "[") ||
           chat_parse_expr_sees(parse, "{");
}

static enum err chat_parse_test(struct chat_parse *parse,
                                struct chat_node **out)
{
    bool negated = chat_parse_expr_take_name(parse, "not");
    const struct chat_lex_word *word = parse->word;
    struct chat_node *arguments = NULL, *value = NULL;
    if (word->kind != CHAT_LEX_NAME)
        return chat_parse_expr_refuse(parse, "a test's name");
    parse->word++;
    if (chat_parse_expr_take(parse, "(")) {
        TRY(chat_parse_arguments(parse, ")", true, &arguments));
    } else if (chat_parse_operand(parse)) {
        TRY(chat_parse_expr_postfix(parse, false, &value));
        TRY(chat_parse_expr_make(parse, CHAT_NODE_ARGUMENT, word, value, NULL,
                                 &arguments));
        arguments->bytes = 0;
    }
    TRY(chat_parse_expr_make(parse, CHAT_NODE_TEST, word, *out, arguments,
                             out));
    return negated ? chat_parse_expr_make(parse, CHAT_NODE_NOT, word, *out,
                                          NULL, out)
                   : ERR_OK;
}

enum err chat_parse_expr_filters(struct chat_parse *parse,
                                 struct chat_node **out)
{
    do {
        const struct chat_lex_word *word = parse->word;
        struct chat_node *arguments = NULL;
        if (word->kind != CHAT_LEX_NAME)
            return chat_parse_expr_refuse(parse, "a filter's name");
        parse->word++;
        if (chat_parse_expr_take(parse, "("))
            TRY(chat_parse_arguments(parse, ")", true, &arguments));
        TRY(chat_parse_expr_make(parse, CHAT_NODE_FILTER, word, *out, arguments,
                                 out));
    } while (chat_parse_expr_take(parse, "|"));
    return ERR_OK;
}

enum err chat_parse_expr_postfix(struct chat_parse *parse, bool filters,
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
            TRY(chat_parse_expr_filters(parse, out));
        } else if (filters && chat_parse_expr_take_name(parse, "is")) {
            TRY(chat_parse_test(parse, out));
        } else {
            break;
        }
    }
    parse->depth--;
    return ERR_OK;
}
