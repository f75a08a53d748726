/* The list of algorithms in the settings: what goes together, what each asks of
 * the run's parts, and what of it stays. */
#include "src/train/run/algorithm.h"

#include "src/train/settings/algorithm_settings.h"
#include "src/train/settings/train_settings.h"
#include "tests/run_settings.h"
#include "tests/tap.h"

static struct train_settings settings;

static enum err load(const char *list, const char *more)
{
    return run_settings(&settings,
                        "run.dir=/tmp/x data.train=/tmp/y "
                        "train.max_duration=60ba train.global_batch=32 "
                        "hardware.backend=cpu algorithms=(%s) %s",
                        list, more);
}

static const struct {
    const char *list, *more, *text;
} refused[] = {
    { "{name=\"emma\";}", "", "ema" },
    { "{name=\"ema\";half_lif=\"2ba\";}", "", "half_life" },
    { "{name=\"ema\";},{name=\"ema\";}", "", "twice" },
    { "{name=\"ema\";},{name=\"swa\";}", "", "swa: another algorithm" },
    { "{name=\"ema\";half_life=\"9ba\";smoothing=0.5;}", "", "say the same" },
    { "{name=\"ema\";half_life=\"0ba\";}", "", "above 0" },
    { "{name=\"gradient_clipping\";}", "train.clip_norm=0.5",
      "train.clip_norm" },
    { "{name=\"gradient_clipping\";eps=1e-2;}", "", "adaptive" },
    { "{name=\"seq_length_warmup\";max_seq_len=4096;}", "", "data.seq_len" },
    { "{name=\"seq_length_warmup\";min_seq_len=64;max_seq_len=32;}", "",
      "min_seq_len (64)" },
    { "{name=\"label_smoothing\";smoothing=1.0;}", "", "smoothing" },
    { "{name=\"stochastic_depth\";drop_rate=1.0;}", "", "drop_rate" },
    { "{name=\"sam\";interval=0;}", "", "interval" },
    { "{name=\"selective_backprop\";keep=0.02;}", "", "less than one" },
    { "{name=\"selective_backprop\";keep=1.5;}", "", "keep" },
};

static void test_refused(void)
{
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        enum err rc = load(refused[i].list, refused[i].more);
        tap_ok(rc == ERR_USAGE && strstr(err_text(), refused[i].text) != NULL,
               "%s %s: %s", refused[i].list, refused[i].more, err_text());
    }
}

static void test_needs(void)
{
    const struct algorithm_needs *needs = &settings.needs;
    enum err rc = load("", "");
    tap_ok(rc == ERR_OK && needs->kept[0].name == NULL && !needs->clips &&
               !needs->swaps && needs->drop_depth == 0,
           "none: nothing is asked for");
    rc = load("{name=\"sam\";},{name=\"ema\";},{name=\"z_loss\";},"
              "{name=\"label_smoothing\";smoothing=0.25;},"
              "{name=\"gradient_clipping\";type=\"adaptive\";},"
              "{name=\"stochastic_depth\";},{name=\"embedding_scaling\";}",
              "");
    tap_ok(rc == ERR_OK && strcmp(needs->kept[0].name, "sam") == 0 &&
               !needs->kept[0].saved &&
               strcmp(needs->kept[1].name, "ema") == 0 &&
               needs->kept[1].saved && needs->kept[2].name == NULL,
           "tensors, in the order of the list");
    tap_ok(needs->target.smoothing == 0.25f && needs->target.z == 1e-4f &&
               needs->drop_depth == 0.2 && needs->embedding_shrink == 0.9 &&
               needs->clips && needs->swaps && needs->units,
           "the loss, the depth, and who clips");
}

/* Equal lists are the same run, others are not. */
static void test_stays(void)
{
    char one[65] = "", other[65] = "", none[65] = "", plain[65] = "";
    struct train_settings *s = &settings;
    bool pass = load("{name=\"ema\";}", "") == ERR_OK &&
                train_settings_hash(s, one) == ERR_OK &&
                load("{name=\"ema\";half_life=\"1000ba\";start=\"0ba\";}",
                     "") == ERR_OK &&
                train_settings_hash(s, other) == ERR_OK;
    tap_ok(pass && strcmp(one, other) == 0, "defaults are the same list");
    pass = load("{name=\"ema\";half_life=\"999ba\";}", "") == ERR_OK &&
           train_settings_hash(s, other) == ERR_OK && load("", "") == ERR_OK &&
           train_settings_hash(s, none) == ERR_OK &&
           load("", "train.seed=17") == ERR_OK &&
           train_settings_hash(s, plain) == ERR_OK;
    tap_ok(pass && strcmp(one, other) != 0 && strcmp(one, none) != 0 &&
               strcmp(none, plain) == 0,
           "another half-life and no algorithm are other runs");
}

static void test_table(void)
{
    int count = 0;
    bool pass = true;
    for (; algorithm_kinds[count].help != NULL; count++) {
        char list[96];
        const char *name = algorithm_kinds[count].name;
        snprintf(list, sizeof list, "{name=\"%s\";}", name);
        bool loads = load(list, "") == ERR_OK;
        pass = pass && (loads || strcmp(name, "layer_freezing") == 0 ||
                        strcmp(name, "plugin") == 0);
        if (!loads)
            tap_note("%s: %s", name, err_text());
    }
    tap_ok(pass && count >= 9, "%d algorithms, by their names alone", count);
}

int main(void)
{
    test_table();
    test_refused();
    test_needs();
    test_stays();
    return tap_done();
}
