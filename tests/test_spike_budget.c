/* What counts as an intervention of the last steps, and that the count comes
 * back from a state. */

#include "src/train/listeners/spike_budget.h"
#include "tests/tap.h"

static void test_window(void)
{
    struct spike_budget budget = { .limit = 3, .window = 10 };
    struct rollbacks rollbacks = { 0 };
    char text[160];
    tap_is_int(spike_budget_used(&budget, &rollbacks, 5), 0, "none at first");
    spike_budget_text(&budget, &rollbacks, 5, text, sizeof text);
    tap_is_str(text, "nothing", "and nothing to tell");
    spike_budget_skip(&budget, 5);
    tap_is_int(spike_budget_used(&budget, &rollbacks, 14), 1,
               "an update left out counts for the window's steps");
    tap_is_int(spike_budget_used(&budget, &rollbacks, 15), 0, "and no longer");
    struct rollback one = rollback_make(&rollbacks, 12, 9);
    tap_ok(rollback_add(&rollbacks, &one) == ERR_OK, "a rollback, 12 to 9");
    tap_is_int(spike_budget_used(&budget, &rollbacks, 9), 2,
               "it counts where the run goes on");
    tap_is_int(spike_budget_used(&budget, &rollbacks, 8), 1,
               "but not in steps before, which an older checkpoint repeats");
    tap_is_int(spike_budget_used(&budget, &rollbacks, 21), 1,
               "for the window's steps from where it came from");
    tap_is_int(spike_budget_used(&budget, &rollbacks, 22), 0, "and no longer");
    spike_budget_text(&budget, &rollbacks, 13, text, sizeof text);
    tap_is_str(text, "back from step 12 to 9; left out step 6",
               "a text names both");
    spike_budget_text(&budget, &rollbacks, 13, text, 12);
    tap_is_str(text, "back from s", "and is cut where there is no room");
    rollback_free(&rollbacks);
}

static void test_state(void)
{
    struct spike_budget budget = { .limit = 3, .window = 10 };
    struct spike_budget back = {
        .limit = 7, .window = 5, .left_out = 9, .count = 1
    };
    json_t *state = json_object();
    tap_ok(spike_budget_store(&budget, state) == ERR_OK &&
               json_object_size(state) == 0 &&
               spike_budget_restore(&back, state) == ERR_OK &&
               back.left_out == 0 && back.count == 0,
           "none left out: nothing is stored");
    for (int i = 0; i < 3000; i++)
        spike_budget_skip(&budget, i);
    tap_is_int(budget.count, 10, "those behind the window are not kept");
    tap_ok(spike_budget_store(&budget, state) == ERR_OK &&
               spike_budget_restore(&back, state) == ERR_OK &&
               back.left_out == 3000 && back.count == 10 &&
               back.skips[0] == 2990 && back.skips[9] == 2999,
           "the others come back");
    tap_ok(back.limit == 7 && back.window == 5, "for the settings as they are");
    budget.window = 1 << 20;
    for (int i = 0; i < 3000; i++)
        spike_budget_skip(&budget, 3000 + i);
    tap_is_int(budget.count, TRAIN_SPIKE_BUDGET_MAX,
               "no more than may ever be allowed");
    static const char *const bad[] = {
        "{\"spike_budget\": 1}",
        "{\"spike_budget\": {\"left_out\": 1}}",
        "{\"spike_budget\": {\"left_out\": \"x\", \"skips\": []}}",
        "{\"spike_budget\": {\"left_out\": 1, \"skips\": [\"x\"]}}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        json_decref(state);
        state = json_loads(bad[i], 0, NULL);
        tap_ok(spike_budget_restore(&back, state) == ERR_CHECKPOINT,
               "damaged: %s", bad[i]);
    }
    json_decref(state);
}

int main(void)
{
    test_window();
    test_state();
    return tap_done();
}
