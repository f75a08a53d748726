/* What counts as a spike, and that the history comes back from a state. */

#include "src/train/listeners/on_spike.h"
#include "tests/tap.h"

static bool judge(struct on_spike *spike, double loss, double norm)
{
    char text[256];
    return on_spike_judge(spike, 2, 10, loss, norm, text, sizeof text);
}

static struct on_spike after(double loss, double norm, int steps)
{
    struct on_spike spike = { 0 };
    for (int i = 0; i < steps; i++)
        judge(&spike, loss, norm);
    return spike;
}

static void test_bounds(void)
{
    static const struct {
        const char *name;
        double loss, norm; /* of the steps before */
        int steps;
        double next_loss, next_norm;
        bool want;
    } table[] = {
        { "the first step", 0, 0, 0, 1e9, 1e9, false },
        { "from 6.6 to 1.9e7 in the second", 6.6, 1, 1, 1.9e7, 1, true },
        { "and after any number of steps", 6.6, 1, 1000, 1.9e7, 1, true },
        { "twice the median is none yet", 6, 1, 40, 12, 1, false },
        { "more than twice is one", 6, 1, 40, 12.1, 1, true },
        { "a small loss may double", 0.1, 1, 40, 0.5, 1, false },
        { "but not grow by half a nat", 0.1, 1, 40, 0.7, 1, true },
        { "a norm of ten times is none yet", 6, 2, 40, 6, 20, false },
        { "more than that is one", 6, 2, 40, 6, 20.1, true },
        { "a fall is none", 6, 2, 40, 0.001, 0.001, false },
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct on_spike spike =
            after(table[i].loss, table[i].norm, table[i].steps);
        tap_ok(judge(&spike, table[i].next_loss, table[i].next_norm) ==
                   table[i].want,
               "%s", table[i].name);
    }
}

static void test_history(void)
{
    struct on_spike spike = after(3, 1, 40);
    char text[256];
    tap_ok(judge(&spike, 30, 1) && judge(&spike, 30, 1),
           "one spike does not hide the next");
    int spikes = 2;
    while (spikes < 100 && judge(&spike, 30, 1))
        spikes++;
    tap_is_int(spikes, ON_SPIKE_STEPS / 2,
               "a level that stays is none after half the window");
    spike = after(3, 1, 40);
    tap_ok(!on_spike_judge(&spike, 0, 0, 1e9, 1e9, text, sizeof text),
           "factors of 0 bound nothing");
}

static void test_medians(void)
{
    struct on_spike spike = { 0 };
    double loss = 0, norm = 0;
    tap_ok(on_spike_medians(&spike, &loss, &norm) == 0 && isnan(loss) &&
               isnan(norm),
           "nothing has been seen: no medians");
    for (int i = 0; i < 50; i++)
        judge(&spike, i, 100 - i);
    tap_ok(on_spike_medians(&spike, &loss, &norm) == ON_SPIKE_STEPS &&
               loss == 34 && norm == 67,
           "of the last steps, the upper ones");
}

static void test_state(void)
{
    struct on_spike spike = { 0 }, back = after(1, 1, 3);
    json_t *state = json_object();
    tap_ok(on_spike_store(&spike, state) == ERR_OK &&
               json_object_size(state) == 0 &&
               on_spike_restore(&back, state) == ERR_OK && back.count == 0,
           "nothing seen: nothing stored");
    for (int i = 0; i < 50; i++)
        judge(&spike, 3 + 1.0 / (i + 3), 0.1 * i);
    tap_ok(on_spike_store(&spike, state) == ERR_OK, "a history is stored");
    char *dump = json_dumps(state, 0);
    json_decref(state);
    state = json_loads(dump, 0, NULL);
    free(dump);
    tap_ok(on_spike_restore(&back, state) == ERR_OK &&
               memcmp(&back, &spike, sizeof back) == 0,
           "and comes back, bit for bit, as text");
    static const char *const bad[] = {
        "{\"spike_history\": 1}",
        "{\"spike_history\": {\"loss\": [1]}}",
        "{\"spike_history\": {\"loss\": [1], \"grad_norm\": [1, 2]}}",
        "{\"spike_history\": {\"loss\": [\"x\"], \"grad_norm\": [1]}}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        json_decref(state);
        state = json_loads(bad[i], 0, NULL);
        enum err rc = on_spike_restore(&back, state);
        tap_ok(rc == ERR_CHECKPOINT, "damaged: %s", bad[i]);
    }
    json_decref(state);
}

int main(void)
{
    test_bounds();
    test_history();
    test_medians();
    test_state();
    return tap_done();
}
