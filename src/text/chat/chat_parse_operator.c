/* Operators are read by descent, in the order in which Jinja's bind: if-else,
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

static enum err chat_parse_unary(struct chat_parse *parse,
                                 struct chat_node **out)
{
    const struct chat_lex_word *word = parse->word;
    if (!chat_parse_expr_take(parse, "-"))
        return chat_parse_expr_postfix(parse, true, out);
    TRY(chat_parse_expr_postfix(parse, true, out));
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
        if (chat_parse_expr_sees(parse, chat_parse_ranks[rank][i]) ||
            (rank == 0 &&
             chat_parse_expr_sees_name(parse, chat_parse_ranks[rank][i])))
            return true;
    return false;
}

static enum err chat_parse_binary(struct chat_parse *parse, size_t rank,
                                  struct chat_node **out)
{
    if (rank == CHAT_PARSE_RANKS)
        return chat_parse_unary(parse, out);
    TRY(chat_parse_binary(parse, rank + 1, out));
    for (struct chat_node *before = NULL, *left = *out;;) {
        struct chat_node *right = NULL;
        bool not_in = rank == 0 && chat_parse_expr_sees_name(parse, "not") &&
                      chat_lex_is(parse->word + 1, CHAT_LEX_NAME, "in");
        if (!not_in && !chat_parse_operator(parse, rank))
            return ERR_OK;
        parse->word += not_in;
        const struct chat_lex_word *word = parse->word++;
        TRY(chat_parse_binary(parse, rank + 1, &right));
        TRY(chat_parse_expr_make(parse, CHAT_NODE_BINARY, word, left, right,
                                 out));
        if (not_in)
            TRY(chat_parse_expr_make(parse, CHAT_NODE_NOT, word, *out, NULL,
                                     out));
        if (before != NULL) /* a < b < c is a < b and b < c */
            TRY(chat_parse_expr_make(parse, CHAT_NODE_AND, word, before, *out,
                                     out));
        before = rank == 0 ? *out : NULL;
        left = rank == 0 ? right : *out;
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
    while (chat_parse_expr_sees_name(parse, "and")) {
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
    while (chat_parse_expr_sees_name(parse, "or")) {
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
    if (chat_parse_expr_sees_name(parse, "if")) {
        const struct chat_lex_word *word = parse->word++;
        TRY(chat_parse_expr_or(parse, &condition));
        if (chat_parse_expr_take_name(parse, "else"))
            TRY(chat_parse_expr_read(parse, &other));
        TRY(chat_parse_expr_make(parse, CHAT_NODE_CONDITIONAL, word, *out,
                                 condition, out));
        (*out)->c = other;
        if (chat_parse_expr_depth(other) >= (*out)->depth)
            (*out)->depth = other->depth + 1;
    }
    parse->depth--;
    return ERR_OK;
}
