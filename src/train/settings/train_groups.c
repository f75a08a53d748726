/* Reads optimizer.groups. What a group does not say is as the run has it. A
 * group with another optimizer has that one's defaults, but for what is given
 * and nothing to the run's own optimizer: an eps for groups with AdamW can be
 * given once, though the run's Lion does not use it.
 *
 * The first group whose globs match a tensor has it. Groups are resolved here,
 * to numbers and optimizers; which tensor is whose is found by name, later and
 * wherever it is asked (optimizer_find()), so nothing depends on an order of
 * tensors. */
#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/train/settings/train_settings.h"

#define KEY "optimizer.groups"
#define NOT_GIVEN "-1"

struct item {
    char match[SETTINGS_TEXT_BYTES];
    char optimizer[SETTINGS_TEXT_BYTES];
    double lr, lr_scale, weight_decay, beta1, beta2, eps;
};

#define ITEM(type, field, ...)                                                 \
    SETTINGS_ROW(offsetof(struct item, field), #field, type, __VA_ARGS__)
static const struct setting item_schema[] = {
    ITEM(STRING, match, NULL, 0,
         "globs of names of tensors, with blanks between: \"*norm* *bias\""),
    ITEM(STRING, optimizer, "", 0, "another than optimizer.name; empty: that"),
    ITEM(FLOAT(-1, 1e3), lr, NOT_GIVEN, 0, "peak rate; -1: as the others'"),
    ITEM(FLOAT(0, 1e6), lr_scale, "1", 0, "what multiplies optimizer.lr"),
    ITEM(FLOAT(-1, 1), weight_decay, NOT_GIVEN, 0, "-1: as the others'"),
    ITEM(FLOAT(-1, 0.99999), beta1, NOT_GIVEN, 0,
         "-1: as the others'; of another optimizer its default, or what is "
         "given and nothing to optimizer.name"),
    ITEM(FLOAT(-1, 0.999999), beta2, NOT_GIVEN, 0, "likewise"),
    ITEM(FLOAT(-1, 1), eps, NOT_GIVEN, 0, "likewise"),
};
const struct settings_kind optimizer_group_kinds[] = {
    { NULL, "tensors by name", item_schema,
      sizeof item_schema / sizeof item_schema[0] },
    { 0 },
};

static enum err find_optimizer(const char *name, int number,
                               const struct optimizer_ops *rest,
                               const struct optimizer_ops **out)
{
    *out = rest;
    for (int i = 0; name[0] != '\0' && optimizer_names[i] != NULL; i++)
        if (strcmp(name, optimizer_names[i]) == 0) {
            *out = optimizer_at(i);
            return ERR_OK;
        }
    return name[0] == '\0'
               ? ERR_OK
               : err_set(ERR_USAGE,
                         KEY
                         ": item %d: there is no optimizer '%.32s': use one "
                         "of those that optimizer.name can be",
                         number, name);
}

/* A setting of the group "optimizer". */
struct value {
    const char *field;
    double given, run; /* the group's, the run's */
    double own;        /* the group's optimizer's default; 0: the table's */
};

static double value_of(const struct train_settings *s, bool same,
                       const struct optimizer_ops *rest,
                       const struct value *value)
{
    char key[64];
    snprintf(key, sizeof key, "optimizer.%s", value->field);
    const struct setting *setting = train_settings_setting(key);
    assert(setting != NULL && setting->type == SETTING_FLOAT);
    if (value->given >= 0.0)
        return value->given;
    /* what the run does not go by itself was given for its groups */
    if (same || (!optimizer_uses(rest, value->field) &&
                 !train_settings_default(s, setting)))
        return value->run;
    return value->own > 0.0 ? value->own : strtod(setting->preset, NULL);
}

/* Below 0 is one number only: nothing was said. */
static enum err check_signs(const struct item *item, int number)
{
    const struct {
        const char *key;
        double value;
    } list[] = { { "lr", item->lr },
                 { "weight_decay", item->weight_decay },
                 { "beta1", item->beta1 },
                 { "beta2", item->beta2 },
                 { "eps", item->eps } };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        if (list[i].value < 0.0 && list[i].value != -1.0)
            return err_set(ERR_USAGE,
                           KEY ": item %d: %s = %g is below 0: leave it out, "
                               "or give -1, for the others'",
                           number, list[i].key, list[i].value);
    return ERR_OK;
}

static enum err check_item(const struct item *item, int number,
                           const struct train_settings *s,
                           const struct optimizer_ops *rest,
                           const struct optimizer_ops *own)
{
    if (strlen(item->match) >= OPTIMIZER_MATCH)
        return err_set(ERR_USAGE, KEY ": item %d: match has more than %d bytes",
                       number, OPTIMIZER_MATCH - 1);
    TRY(check_signs(item, number));
    if (item->lr >= 0.0 && item->lr_scale != 1.0)
        return err_set(ERR_USAGE,
                       KEY ": item %d has lr and lr_scale: give one of them",
                       number);
    if (own->decay_by_lr != rest->decay_by_lr && item->weight_decay < 0.0 &&
        s->optimizer.weight_decay > 0.0)
        return err_set(ERR_USAGE,
                       KEY ": item %d: weight_decay is multiplied by lr with "
                           "one of %s and %s and not with the other: give the "
                           "group its own",
                       number, own->name, rest->name);
    return ERR_OK;
}

static enum err read_item(const struct train_settings *s, int index,
                          struct train_groups *out)
{
    struct item item;
    int kind;
    const struct optimizer_ops *rest = optimizer_at(s->optimizer.name);
    const struct optimizer_ops *own;
    assert(index >= 0 && index < OPTIMIZER_GROUPS);
    struct train_group *group = &out->own[index];
    TRY(settings_list_item(train_settings_setting(KEY), s->optimizer.groups,
                           index, &kind, &item));
    TRY(find_optimizer(item.optimizer, index + 1, rest, &own));
    TRY(check_item(&item, index + 1, s, rest, own));
    bool same = own == rest;
    out->list[index].optimizer = own;
    strcpy(out->list[index].match, item.match);
    group->has_lr = item.lr >= 0.0;
    group->lr = item.lr >= 0.0 ? item.lr : item.lr_scale * s->optimizer.lr;
    group->weight_decay = item.weight_decay >= 0.0 ? item.weight_decay
                                                   : s->optimizer.weight_decay;
    const struct {
        struct value value;
        double *to;
    } list[] = {
        { { "beta1", item.beta1, s->optimizer.beta1, 0.0 }, &group->beta1 },
        { { "beta2", item.beta2, s->optimizer.beta2, own->defaults.beta2 },
          &group->beta2 },
        { { "eps", item.eps, s->optimizer.eps, 0.0 }, &group->eps },
        { { "outlier_threshold", -1.0, s->optimizer.outlier_threshold,
            own->defaults.outlier_threshold },
          &group->outlier_threshold },
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        *list[i].to = value_of(s, same, rest, &list[i].value);
    group->unused = NULL;
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        if (list[i].value.given >= 0.0 &&
            !optimizer_uses(own, list[i].value.field))
            group->unused = list[i].value.field;
    return ERR_OK;
}

enum err train_groups_read(const struct train_settings *settings,
                           struct train_groups *out)
{
    out->count = 0;
    TRY(settings_list_count(train_settings_setting(KEY),
                            settings->optimizer.groups, &out->count));
    if (out->count > OPTIMIZER_GROUPS)
        return err_set(ERR_USAGE, KEY " has %d items, more than %d", out->count,
                       OPTIMIZER_GROUPS);
    for (int i = 0; i < out->count; i++)
        TRY(read_item(settings, i, out));
    return ERR_OK;
}

enum err train_groups_check(const struct train_groups *groups,
                            const struct params *params)
{
    bool used[1 + OPTIMIZER_GROUPS] = { false };
    const struct optimizer_ops *optimizer;
    assert(groups->count <= OPTIMIZER_GROUPS);
    for (int p = 0; p < params->count; p++)
        used[optimizer_find(optimizer_at(0), groups->list, groups->count,
                            &params->list[p], &optimizer)] = true;
    for (int i = 0; i < groups->count; i++)
        if (!used[1 + i])
            return err_set(ERR_USAGE,
                           KEY ": item %d: no tensor that trains matches "
                               "\"%s\" and no group before it (names are such "
                               "as transformer.blocks.0.attn.Wqkv.weight)",
                           i + 1, groups->list[i].match);
    return ERR_OK;
}

bool train_groups_use(const struct train_groups *groups, const char *field)
{
    for (int i = 0; i < groups->count; i++)
        if (optimizer_uses(groups->list[i].optimizer, field))
            return true;
    return false;
}
