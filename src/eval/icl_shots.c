/* The choice of examples in few-shot prompts.
 *
 * LLM Foundry samples the numbers of as many examples as shots are wanted, out of
 * all, the one at hand among them. If that is in the sample, it goes, and numbers
 * are drawn until one is neither it nor there already. All of this is done with a
 * set, and shots are written in the order in which Python walks through it, which
 * is neither that of the sample nor that of the numbers: so both CPython's
 * generator and its sets are needed to show the same examples in the same order
 * (python_random.h). One generator serves the whole task, and what it draws for
 * an example depends on all that came before. */
#include "src/eval/icl_prompts.h"

#include <assert.h>
#include <stdlib.h>

#include "src/base/new.h"
#include "src/eval/python_random.h"

struct icl_shots {
    struct python_random random;
    int64_t count, shots;
    int64_t at;    /* whose turn it is */
    int64_t *list; /* [shots + 1] */
};

enum err icl_shots_create(int64_t count, int64_t shots, uint64_t seed,
                          struct icl_shots **out)
{
    assert(count > 0 && count <= UINT32_MAX && shots >= 0);
    struct icl_shots *choice = NULL;
    TRY(new_zeroed(&choice, 1));
    choice->count = count;
    choice->shots = shots < count ? shots : count - 1;
    enum err rc = new_room(&choice->list, (size_t)(choice->shots + 1));
    if (rc != ERR_OK) {
        free(choice);
        return rc;
    }
    python_random_seed(&choice->random, seed);
    *out = choice;
    return ERR_OK;
}

void icl_shots_destroy(struct icl_shots *choice)
{
    if (choice == NULL)
        return;
    free(choice->list);
    free(choice);
}

/* The example itself gives its place to another one that was not drawn. */
static enum err shots_replace(struct icl_shots *choice, struct python_set *set)
{
    int64_t other;
    python_set_remove(set, choice->at);
    do
        other = python_random_choice(&choice->random, choice->count);
    while (other == choice->at || python_set_has(set, other));
    return python_set_add(set, other);
}

enum err icl_shots_next(struct icl_shots *choice, const int64_t **list,
                        int64_t *listed)
{
    enum err rc = ERR_OK;
    struct python_set set = { 0 };
    assert(choice->at < choice->count);
    if (choice->shots > 0)
        TRY(python_random_sample(&choice->random, choice->count, choice->shots,
                                 choice->list));
    for (int64_t i = 0; i < choice->shots; i++)
        TRY_OUT(python_set_add(&set, choice->list[i]));
    if (python_set_has(&set, choice->at))
        TRY_OUT(shots_replace(choice, &set));
    assert((int64_t)set.used == choice->shots);
    python_set_list(&set, choice->list);
    *list = choice->list;
    *listed = (int64_t)set.used;
    choice->at++;
out:
    python_set_free(&set);
    return rc;
}
