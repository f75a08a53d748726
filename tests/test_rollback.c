/* Which batches rollbacks leave out, and that state and ledger give them back.
 */

#include "src/base/rng.h"
#include "src/train/run/rollback.h"
#include "tests/tap.h"

static void go_back(struct rollbacks *rollbacks, int64_t from, int64_t to)
{
    struct rollback one = rollback_make(rollbacks, from, to);
    tap_ok(rollback_add(rollbacks, &one) == ERR_OK, "from %lld back to %lld",
           (long long)from, (long long)to);
}

static void test_batches(void)
{
    struct rollbacks r = { 0 };
    tap_is_int(rollback_batch(&r, 7), 7, "without any, step 7 reads batch 7");
    tap_is_int(rollback_behind(&r, 0), 0, "data begin at batch 0");
    go_back(&r, 12, 10);
    tap_is_int(r.list[0].batches, 3, "three batches are left out");
    tap_is_int(rollback_batch(&r, 9), 9, "the step before reads as before");
    tap_is_int(rollback_batch(&r, 10), 13, "the next one what 13 would have");
    tap_is_int(rollback_behind(&r, 10), 10, "other data would begin at 10");
    tap_is_int(rollback_left_out(&r, 10), 3, "3 are left out before it");
    go_back(&r, 10, 10);
    tap_is_int(rollback_batch(&r, 10), 14, "again at once: one more");
    go_back(&r, 30, 20);
    tap_is_int(rollback_batch(&r, 19), 23, "a later one leaves these alone");
    tap_is_int(rollback_batch(&r, 20), 35, "and moves those behind it");
    go_back(&r, 22, 5);
    tap_is_int(r.gap_count, 1, "one that spans the others is all there is");
    tap_is_int(rollback_batch(&r, 5), 38, "it counts what they have left out");
    tap_is_int(rollback_left_out(&r, 4), 0, "none before it");
    rollback_free(&r);
}

/* By the definition: strike out what each has read, then count. */
static void test_by_hand(void)
{
    enum { STEPS = 200 };
    bool good = true;
    for (uint64_t seed = 1; seed <= 50 && good; seed++) {
        struct rollbacks r = { 0 };
        bool out[8 * STEPS] = { false };
        int64_t read[STEPS];
        for (uint64_t n = 0; n < 6 && good; n++) {
            int64_t batch = 0;
            for (int64_t k = 0; k < STEPS; k++, batch++) {
                while (out[batch])
                    batch++;
                read[k] = batch;
                good = good && rollback_batch(&r, k) == batch;
            }
            int64_t from = (int64_t)(rng_u64(seed, 0, 2 * n) % STEPS);
            int64_t to = from - (int64_t)(rng_u64(seed, 0, 2 * n + 1) % 20);
            to = to < 0 ? 0 : to;
            struct rollback one = rollback_make(&r, from, to);
            for (int64_t k = to; k <= from; k++)
                out[read[k]] = true;
            good = good && rollback_add(&r, &one) == ERR_OK;
        }
        rollback_free(&r);
    }
    tap_ok(good, "as counted one by one, for any rollbacks");
}

static json_t *as_ledger(const struct rollbacks *r)
{
    json_t *events = json_array();
    for (int i = 0; i < r->count; i++) {
        json_t *event = rollback_json(&r->list[i]);
        json_object_set_new(event, "number", json_integer(i + 1));
        json_object_set_new(event, "run_uuid", json_string("u-1"));
        json_array_append_new(events, event);
    }
    return events;
}

static void test_state(void)
{
    struct rollbacks r = { 0 }, back = { 0 };
    json_t *state = json_object(), *older = json_object();
    tap_ok(rollback_store(&r, state) == ERR_OK && json_object_size(state) == 0,
           "none: nothing is stored");
    go_back(&r, 12, 10);
    tap_ok(rollback_store(&r, older) == ERR_OK, "the state of step 20");
    go_back(&r, 24, 20);
    go_back(&r, 26, 20);
    json_t *ledger = as_ledger(&r);
    tap_ok(rollback_restore(&back, 20, older, ledger, "u-1") == ERR_OK &&
               back.count == 3 &&
               memcmp(back.list, r.list, 3 * sizeof r.list[0]) == 0,
           "what happened after it comes from the ledger");
    tap_ok(rollback_restore(&back, 10, NULL, ledger, "u-1") == ERR_OK &&
               back.count == 3 && rollback_batch(&back, 19) == 22 &&
               rollback_batch(&back, 20) == rollback_batch(&r, 20),
           "an older checkpoint reads the same, step for step");
    json_decref(state);
    state = json_object();
    tap_ok(rollback_store(&r, state) == ERR_OK &&
               rollback_restore(&back, 40, state, NULL, "u-1") == ERR_OK &&
               back.count == 3,
           "the newest state needs no ledger");
    tap_ok(rollback_restore(&back, 40, state, ledger, "u-1") == ERR_OK &&
               back.count == 3,
           "nor does it take anything twice");
    tap_ok(rollback_restore(&back, 25, older, ledger, "u-1") == ERR_CHECKPOINT,
           "a checkpoint of steps that were given up is refused");
    tap_ok(rollback_restore(&back, 5, NULL, NULL, "u-1") == ERR_OK &&
               back.count == 0,
           "nothing is known: none");
    tap_ok(rollback_restore(&back, 5, NULL, ledger, "u-2") == ERR_OK &&
               back.count == 0,
           "those of another run in the folder: none");
    json_array_remove(ledger, 1);
    tap_ok(rollback_restore(&back, 5, older, ledger, "u-1") == ERR_CHECKPOINT,
           "a ledger that lacks one is told");
    static const char *const bad[] = {
        "{\"rollbacks\": 1}",
        "{\"rollbacks\": [1]}",
        "{\"rollbacks\": [{\"from\": 3, \"to\": 4, \"first\": 4, "
        "\"batches\": 1}]}",
        "{\"rollbacks\": [{\"from\": 4, \"to\": 3, \"first\": 3, "
        "\"batches\": 0}]}",
        "{\"rollbacks\": [{\"from\": 4, \"to\": 3, \"first\": -3, "
        "\"batches\": 1}]}",
        "{\"rollbacks\": [{\"from\": 4.5, \"to\": 3, \"first\": 3, "
        "\"batches\": 1}]}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        json_decref(state);
        state = json_loads(bad[i], 0, NULL);
        tap_ok(rollback_restore(&back, 9, state, NULL, "u-1") == ERR_CHECKPOINT,
               "damaged: %s", bad[i]);
    }
    rollback_free(&r);
    rollback_free(&back);
    json_decref(state);
    json_decref(older);
    json_decref(ledger);
}

int main(void)
{
    test_batches();
    test_by_hand();
    test_state();
    return tap_done();
}
