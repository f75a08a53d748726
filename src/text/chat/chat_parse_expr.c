/* Values of expressions, what follows them, . [] () | is, and operators.
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
 * such value.
 *
 * Operators are read by descent, in the order in which Jinja's bind: if-else,
 * or, and, not, comparisons, + and -, ~, products, minus.
 *
 * Each rank reads operands of the next tighter one and joins them as long as
 * operators of its own follow. Those with two sides are alike but for their
 * signs, so they are one function, with the rank as its parameter and a table
 * of signs (this is called precedence climbing). All of them join from the
 * left. "~", which makes texts of its sides and joins them, is Jinja's own, and
 * lies between sums and products: "a" ~ 1 + 2 is ("a" ~ 1) + 2.
 *
 * Comparisons are in a row as in Python: a < b < c means a < b and b < c. There
 * b is evaluated once, here twice, which no template can tell, since evaluating
 * changes nothing. */
#include "src/text/chat/chat_parse_impl.h"

/* Values up to the closing sign, and with it. named: name=value is allowed. */
static enum err chat_parse_arguments(struct chat_parse *parse,
                                     const char *close, bool named,
                                     struct chat_node **out)
{
    struct chat_node **last = out, *value = NULL;
    *out = NULL;
    while (!chat_parse_take(parse, close)) {
        const struct chat_lex_word *first = parse->word;
        bool has_name = named && first->kind == CHAT_LEX_NAME &&
                        chat_lex_is(first + 1, CHAT_LEX_SIGN, "=");
        parse->word += has_name ? 2 : 0;
        TRY(chat_parse_expr_read(parse, &value));
        TRY(chat_parse_make(parse, CHAT_NODE_ARGUMENT, first, value, NULL,
                            last));
        if (!has_name)
            (*last)->bytes = 0;
        last = &(*last)->next;
        if (!chat_parse_sees(parse, close))
            TRY(chat_parse_need(parse, ","));
    }
    return ERR_OK;
}

static bool chat_parse_ends(const struct chat_parse *parse)
{
    return parse->word->kind == CHAT_LEX_PRINT_CLOSE ||
           parse->word->kind == CHAT_LEX_BLOCK_CLOSE ||
           chat_parse_sees(parse, ")");
}

/* Commas make a tuple without parentheses wherever a whole value is wanted:
 * what is printed, set or gone over. One comma behind one value is enough. */
enum err chat_parse_expr_tuple(struct chat_parse *parse, bool condition,
                               struct chat_node **out)
{
    const struct chat_lex_word *first = parse->word;
    struct chat_node *items = NULL, **last = &items;
    for (;;) {
        TRY(condition ? chat_parse_expr_read(parse, out)
                      : chat_parse_expr_or(parse, out));
        bool more = chat_parse_take(parse, ",");
        if (!more && items == NULL)
            return ERR_OK;
        TRY(chat_parse_make(parse, CHAT_NODE_ARGUMENT, first, *out, NULL,
                            last));
        (*last)->bytes = 0;
        last = &(*last)->next;
        if (!more || chat_parse_ends(parse))
            break;
    }
    TRY(chat_parse_make(parse, CHAT_NODE_LIST, first, items, NULL, out));
    (*out)->value = 1;
    return ERR_OK;
}

/* In parentheses: one value, or a tuple. */
static enum err chat_parse_parentheses(struct chat_parse *parse,
                                       struct chat_node **out)
{
    if (!chat_parse_sees(parse, ")")) {
        TRY(chat_parse_expr_tuple(parse, true, out));
        return chat_parse_need(parse, ")");
    }
    TRY(chat_parse_make(parse, CHAT_NODE_LIST, parse->word++, NULL, NULL, out));
    (*out)->value = 1;
    return ERR_OK;
}

/* A dictionary, behind its bracket. */
static enum err chat_parse_dict(struct chat_parse *parse,
                                struct chat_node **out)
{
    const struct chat_lex_word *first = parse->word - 1;
    struct chat_node *items = NULL, **last = &items, *value = NULL;
    while (!chat_parse_take(parse, "}")) {
        for (int part = 0; part < 2; part++) {
            TRY(part == 0 ? ERR_OK : chat_parse_need(parse, ":"));
            TRY(chat_parse_expr_read(parse, &value));
            TRY(chat_parse_make(parse, CHAT_NODE_ARGUMENT, first, value, NULL,
                                last));
            last = &(*last)->next;
        }
        if (!chat_parse_sees(parse, "}"))
            TRY(chat_parse_need(parse, ","));
    }
    return chat_parse_make(parse, CHAT_NODE_DICT, first, items, NULL, out);
}

/* A string, or several one behind the other, which are joined. */
static enum err chat_parse_strings(struct chat_parse *parse,
                                   struct chat_node **out)
{
    static const struct chat_lex_word join = { .kind = CHAT_LEX_SIGN,
                                               .text = "~",
                                               .bytes = 1 };
    TRY(chat_parse_make(parse, CHAT_NODE_STRING, parse->word++, NULL, NULL,
                        out));
    while (parse->word->kind == CHAT_LEX_STRING) {
        struct chat_node *next = NULL;
        TRY(chat_parse_make(parse, CHAT_NODE_STRING, parse->word++, NULL, NULL,
                            &next));
        TRY(chat_parse_make(parse, CHAT_NODE_BINARY, &join, *out, next, out));
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
            TRY(chat_parse_make(parse, constants[c].kind, word, NULL, NULL,
                                out));
            (*out)->value = constants[c].value;
            return ERR_OK;
        }
    return chat_parse_make(parse, CHAT_NODE_NAME, word, NULL, NULL, out);
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
        return chat_parse_make(parse,
                               word->kind == CHAT_LEX_REAL ? CHAT_NODE_REAL
                                                           : CHAT_NODE_INTEGER,
                               word, NULL, NULL, out);
    case CHAT_LEX_NAME:
        return chat_parse_constant(parse, out);
    default:
        break;
    }
    if (chat_parse_take(parse, "("))
        return chat_parse_parentheses(parse, out);
    if (chat_parse_take(parse, "[")) {
        TRY(chat_parse_arguments(parse, "]", false, &items));
        return chat_parse_make(parse, CHAT_NODE_LIST, word, items, NULL, out);
    }
    if (chat_parse_take(parse, "{"))
        return chat_parse_dict(parse, out);
    return chat_parse_refuse(parse, "a value");
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
    while (!chat_parse_take(parse, "]")) {
        if (parts < 2 && chat_parse_take(parse, ":")) {
            slice = true;
            parts++;
            continue;
        }
        if (part[parts] != NULL)
            return chat_parse_refuse(parse, "']'");
        TRY(chat_parse_expr_read(parse, &part[parts]));
    }
    if (!slice && part[0] == NULL) {
        parse->word--;
        return chat_parse_refuse(parse, "a value");
    }
    TRY(chat_parse_make(parse, slice ? CHAT_NODE_SLICE : CHAT_NODE_ITEM, word,
                        of, part[0], out));
    (*out)->c = part[1];
    (*out)->d = part[2];
    for (int p = 1; p < 3; p++)
        if (chat_parse_depth(part[p]) >= (*out)->depth)
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
        if (chat_parse_sees_name(parse, not_names[n]))
            return false;
    return word->kind == CHAT_LEX_NAME || word->kind == CHAT_LEX_STRING ||
           word->kind == CHAT_LEX_INTEGER || chat_parse_sees(parse, "[") ||
           chat_parse_sees(parse, "{");
}

static enum err chat_parse_postfix(struct chat_parse *parse, bool filters,
                                   struct chat_node **out);

static enum err chat_parse_test(struct chat_parse *parse,
                                struct chat_node **out)
{
    bool negated = chat_parse_take_name(parse, "not");
    const struct chat_lex_word *word = parse->word;
    struct chat_node *arguments = NULL, *value = NULL;
    if (word->kind != CHAT_LEX_NAME)
        return chat_parse_refuse(parse, "a test's name");
    parse->word++;
    if (chat_parse_take(parse, "(")) {
        TRY(chat_parse_arguments(parse, ")", true, &arguments));
    } else if (chat_parse_operand(parse)) {
        TRY(chat_parse_postfix(parse, false, &value));
        TRY(chat_parse_make(parse, CHAT_NODE_ARGUMENT, word, value, NULL,
                            &arguments));
        arguments->bytes = 0;
    }
    TRY(chat_parse_make(parse, CHAT_NODE_TEST, word, *out, arguments, out));
    return negated
               ? chat_parse_make(parse, CHAT_NODE_NOT, word, *out, NULL, out)
               : ERR_OK;
}

enum err chat_parse_expr_filters(struct chat_parse *parse,
                                 struct chat_node **out)
{
    do {
        const struct chat_lex_word *word = parse->word;
        struct chat_node *arguments = NULL;
        if (word->kind != CHAT_LEX_NAME)
            return chat_parse_refuse(parse, "a filter's name");
        parse->word++;
        if (chat_parse_take(parse, "("))
            TRY(chat_parse_arguments(parse, ")", true, &arguments));
        TRY(chat_parse_make(parse, CHAT_NODE_FILTER, word, *out, arguments,
                            out));
    } while (chat_parse_take(parse, "|"));
    return ERR_OK;
}

/* What follows *out, which takes it in. */
static enum err chat_parse_behind(struct chat_parse *parse, bool filters,
                                  struct chat_node **out)
{
    for (;;) {
        const struct chat_lex_word *word = parse->word;
        struct chat_node *arguments = NULL;
        if (chat_parse_take(parse, ".")) {
            word = parse->word++;
            if (word->kind != CHAT_LEX_NAME) {
                parse->word--;
                return chat_parse_refuse(parse, "a name");
            }
            TRY(chat_parse_make(parse, CHAT_NODE_ATTRIBUTE, word, *out, NULL,
                                out));
        } else if (chat_parse_take(parse, "[")) {
            TRY(chat_parse_item(parse, out));
        } else if (chat_parse_take(parse, "(")) {
            TRY(chat_parse_arguments(parse, ")", true, &arguments));
            TRY(chat_parse_make(parse, CHAT_NODE_CALL, word, *out, arguments,
                                out));
        } else if (filters && chat_parse_take(parse, "|")) {
            TRY(chat_parse_expr_filters(parse, out));
        } else if (filters && chat_parse_take_name(parse, "is")) {
            TRY(chat_parse_test(parse, out));
        } else {
            return ERR_OK;
        }
    }
}

/* A value and what follows it. filters: | and is may, too. */
static enum err chat_parse_postfix(struct chat_parse *parse, bool filters,
                                   struct chat_node **out)
{
    TRY(chat_parse_down(parse));
    TRY(chat_parse_value(parse, out));
    TRY(chat_parse_behind(parse, filters, out));
    parse->depth--;
    return ERR_OK;
}

/* -a.b is -(a.b), but -a | b and -a is b are of -a. */
static enum err chat_parse_unary(struct chat_parse *parse, bool filters,
                                 struct chat_node **out)
{
    const struct chat_lex_word *word = parse->word;
    if (!chat_parse_take(parse, "-"))
        return chat_parse_postfix(parse, filters, out);
    TRY(chat_parse_down(parse));
    TRY(chat_parse_unary(parse, false, out));
    TRY(chat_parse_make(parse, CHAT_NODE_MINUS, word, *out, NULL, out));
    parse->depth--;
    return filters ? chat_parse_behind(parse, true, out) : ERR_OK;
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
        if (chat_parse_sees(parse, chat_parse_ranks[rank][i]) ||
            (rank == 0 &&
             chat_parse_sees_name(parse, chat_parse_ranks[rank][i])))
            return true;
    return false;
}

static enum err chat_parse_binary(struct chat_parse *parse, size_t rank,
                                  struct chat_node **out)
{
    if (rank == CHAT_PARSE_RANKS)
        return chat_parse_unary(parse, true, out);
    TRY(chat_parse_binary(parse, rank + 1, out));
    for (struct chat_node *before = NULL, *left = *out;;) {
        struct chat_node *right = NULL;
        bool not_in = rank == 0 && chat_parse_sees_name(parse, "not") &&
                      chat_lex_is(parse->word + 1, CHAT_LEX_NAME, "in");
        if (!not_in && !chat_parse_operator(parse, rank))
            return ERR_OK;
        parse->word += not_in;
        const struct chat_lex_word *word = parse->word++;
        TRY(chat_parse_binary(parse, rank + 1, &right));
        TRY(chat_parse_make(parse, CHAT_NODE_BINARY, word, left, right, out));
        if (not_in)
            TRY(chat_parse_make(parse, CHAT_NODE_NOT, word, *out, NULL, out));
        if (before != NULL) /* a < b < c is a < b and b < c */
            TRY(chat_parse_make(parse, CHAT_NODE_AND, word, before, *out, out));
        before = rank == 0 ? *out : NULL;
        left = rank == 0 ? right : *out;
    }
}

static enum err chat_parse_not(struct chat_parse *parse, struct chat_node **out)
{
    const struct chat_lex_word *word = parse->word;
    if (!chat_parse_take_name(parse, "not"))
        return chat_parse_binary(parse, 0, out);
    TRY(chat_parse_down(parse));
    TRY(chat_parse_not(parse, out));
    parse->depth--;
    return chat_parse_make(parse, CHAT_NODE_NOT, word, *out, NULL, out);
}

static enum err chat_parse_and(struct chat_parse *parse, struct chat_node **out)
{
    struct chat_node *right = NULL;
    TRY(chat_parse_not(parse, out));
    while (chat_parse_sees_name(parse, "and")) {
        const struct chat_lex_word *word = parse->word++;
        TRY(chat_parse_not(parse, &right));
        TRY(chat_parse_make(parse, CHAT_NODE_AND, word, *out, right, out));
    }
    return ERR_OK;
}

enum err chat_parse_expr_or(struct chat_parse *parse, struct chat_node **out)
{
    struct chat_node *right = NULL;
    TRY(chat_parse_and(parse, out));
    while (chat_parse_sees_name(parse, "or")) {
        const struct chat_lex_word *word = parse->word++;
        TRY(chat_parse_and(parse, &right));
        TRY(chat_parse_make(parse, CHAT_NODE_OR, word, *out, right, out));
    }
    return ERR_OK;
}

enum err chat_parse_expr_read(struct chat_parse *parse, struct chat_node **out)
{
    struct chat_node *condition = NULL, *other = NULL;
    TRY(chat_parse_down(parse));
    TRY(chat_parse_expr_or(parse, out));
    if (chat_parse_sees_name(parse, "if")) {
        const struct chat_lex_word *word = parse->word++;
        TRY(chat_parse_expr_or(parse, &condition));
        if (chat_parse_take_name(parse, "else"))
            TRY(chat_parse_expr_read(parse, &other));
        TRY(chat_parse_make(parse, CHAT_NODE_CONDITIONAL, word, *out, condition,
                            out));
        (*out)->c = other;
        if (chat_parse_depth(other) >= (*out)->depth)
            (*out)->depth = other->depth + 1;
    }
    parse->depth--;
    return ERR_OK;
}
