/* optimizer.groups: what a group has of its own, what is refused, and whose
 * settings count as used. */

#include "src/model/params.h"
#include "src/train/settings/train_settings.h"
#include "src/train/start/start_settings.h"
#include "src/train/start/start.h"
#include "tests/idle_fixture.h"
#include "tests/tap.h"

static enum err load(const char *name, const char *groups, const char *more,
                     struct train_settings *out)
{
    char list[2048];
    char optimizer[64];
    char other[128];
    char *overrides[] = { "run.dir=/r",
                          "data.train=/d",
                          "train.max_duration=9ba",
                          "train.global_batch=8",
                          "model.preset=mpt-tiny",
                          list,
                          optimizer,
                          other };
    snprintf(list, sizeof list, "optimizer.groups=%s", groups);
    snprintf(optimizer, sizeof optimizer, "optimizer.name=%s", name);
    snprintf(other, sizeof other, "%s",
             more[0] != '\0' ? more : "train.seed=17");
    return start_settings_load(NULL, overrides,
                               sizeof overrides / sizeof overrides[0], out);
}

static void test_values(struct train_settings *s)
{
    const struct train_group *own = s->groups.own;
    enum err rc =
        load("adamw",
             "( { match = \"*norm* *bias\"; weight_decay = 0.0; }, "
             "{ match = \"*wte*\"; lr = 0.5; optimizer = \"lion\"; }, "
             "{ match = \"*\"; lr_scale = 0.5; beta1 = 0.8; } )",
             "optimizer.lr=0.25", s);
    tap_ok(rc == ERR_OK && s->groups.count == 3, "three groups: %s",
           rc == ERR_OK ? "" : err_text());
    tap_ok(own[0].lr == 0.25 && own[0].weight_decay == 0.0 &&
               own[0].beta1 == 0.9 && own[0].eps == 1e-8 &&
               s->groups.list[0].optimizer == optimizer_at(0),
           "what a group does not say is as the run has it");
    tap_ok(own[1].lr == 0.5 && own[1].beta2 == 0.99 &&
               strcmp(s->groups.list[1].optimizer->name, "lion") == 0,
           "or as another optimizer has it");
    tap_ok(own[2].lr == 0.125 && own[2].beta1 == 0.8 && own[2].beta2 == 0.95,
           "a scaled rate");
    rc = load("lion", "( { match = \"*wte*\"; optimizer = \"adamw\"; } )",
              "optimizer.beta2=0.98", s);
    tap_ok(rc == ERR_OK && own[0].beta2 == 0.95, "Lion's beta2 is not AdamW's");
    rc = load("adamw", "( { match = \"*ffn*\"; optimizer = \"clip_lion\"; } )",
              "", s);
    tap_ok(rc == ERR_OK && own[0].outlier_threshold == 5.0,
           "clip_lion's threshold");
    rc = load("adamw", "()", "", s);
    tap_ok(rc == ERR_OK && s->groups.count == 0, "none by default");
    rc = load("sgd", "( { match = \"*wte*\"; optimizer = \"adamw\"; } )",
              "optimizer.eps=1e-6", s);
    tap_ok(rc == ERR_OK && own[0].eps == 1e-6 && own[0].beta1 == 0.9,
           "what the run's optimizer has no use for is a group's");
}

static const struct {
    const char *name, *groups, *more, *text;
} refused[] = {
    { "adamw", "( { weight_decay = 0.0; } )", "", "match" },
    { "adamw", "( { match = \"*nothing*\"; } )", "", "item 1" },
    { "adamw", "( { match = \"*\"; }, { match = \"*wte*\"; } )", "", "item 2" },
    { "adamw", "( { match = \"*\"; optimizer = \"lyon\"; } )", "", "lyon" },
    { "adamw", "( { match = \"*\"; lr = 0.1; lr_scale = 2.0; } )", "",
      "lr_scale" },
    { "adamw", "( { match = \"*wte*\"; optimizer = \"torch_adamw\"; } )",
      "optimizer.weight_decay=0.1", "weight_decay" },
    { "adamw", "( { match = \"*ffn*\"; optimizer = \"muon\"; } )",
      "parallel.strategy=zero2", "muon" },
    { "muon", "()", "parallel.strategy=zero3", "muon" },
    { "adamw", "( { match = \"*\"; lrs = 0.1; } )", "", "lr" },
    { "adamw", "( { match = \"*\"; lr = -0.5; } )", "", "item 1: lr" },
    { "adamw", "( { match = \"*\"; weight_decay = -1e-9; } )", "",
      "item 1: weight_decay" },
    { "adamw", "( { match = \"*\"; beta1 = -0.9; } )", "", "item 1: beta1" },
    { "adamw", "( { match = \"*\"; beta2 = -0.9; } )", "", "item 1: beta2" },
    { "adamw", "( { match = \"*\"; eps = -1e-8; } )", "", "item 1: eps" },
};

static void test_refused(struct train_settings *s)
{
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        enum err rc =
            load(refused[i].name, refused[i].groups, refused[i].more, s);
        bool right =
            rc == ERR_USAGE && strstr(err_text(), refused[i].text) != NULL;
        tap_ok(right, "refused: %s %s", refused[i].groups, refused[i].more);
        if (!right)
            tap_note("%s", rc == ERR_OK ? "it was taken" : err_text());
    }
}

static void test_unused(struct train_settings *s)
{
    tap_ok(load("sgd", "()", "optimizer.eps=1e-6", s) == ERR_OK &&
               idle_are(s, "optimizer.eps"),
           "SGD does without eps");
    tap_ok(load("sgd", "( { match = \"*wte*\"; optimizer = \"adamw\"; } )",
                "optimizer.eps=1e-6", s) == ERR_OK &&
               idle_are(s, ""),
           "a group's AdamW does not");
    tap_ok(load("muon", "()", "optimizer.beta2=0.98", s) == ERR_OK &&
               idle_are(s, ""),
           "nor does the AdamW to which Muon leaves some");
    tap_ok(load("adamw", "()", "optimizer.ns_steps=3", s) == ERR_OK &&
               idle_are(s, "optimizer.ns_steps"),
           "AdamW has no iterations");
}

/* What decays of a group is by its own rate, as parts of its own peak. */
static void test_decay(struct train_settings *s)
{
    static struct run t;
    struct optimizer_step steps[1 + OPTIMIZER_GROUPS];
    enum err rc =
        load("adamw",
             "( { match = \"*norm*\"; lr = 0.5; weight_decay = 0.25; }, "
             "{ match = \"*\"; lr_scale = 2.0; weight_decay = 0.5; } )",
             "optimizer.lr=0", s);
    t.settings = *s;
    t.plan.schedule =
        (struct schedule){ .kind = SCHEDULE_CONSTANT, .warmup = 4 };
    t.position.step = 2;
    trainer_groups_begin(&t);
    trainer_groups_steps(&t, 1.0, steps);
    tap_ok(rc == ERR_OK && steps[1].lr == 0.25 && steps[1].decay == 0.125 &&
               steps[2].decay == 0.0,
           "a group decays where the run's rate is 0: %g", steps[1].decay);
    t.position.lr0 = 0.5;
    t.now.record.lr = t.settings.optimizer.lr = 1.0;
    t.position.groups_lr0[0] = 2.0;
    trainer_groups_steps(&t, 1.0, steps);
    tap_ok(steps[1].decay == 0.25 * 0.25 / 2.0 && steps[2].decay == 1.0,
           "by the rates of the run's first start: %g", steps[1].decay);
}

int main(void)
{
    static struct train_settings s;
    test_values(&s);
    test_refused(&s);
    test_decay(&s);
    test_unused(&s);
    return tap_done();
}
