/* Settings that are lists of groups, each of the kind that its member `name`
 * chooses, or all of the one kind that has no name:
 *
 *   algorithms = ( { name = "ema"; half_life = "100ba"; }, { name = "sam"; } );
 *   optimizer: { groups = ( { match = "*.norm*"; weight_decay = 0.0; } ); };
 *
 * A kind's members are a schema like any (settings.h), with keys without dots,
 * offsets into a struct of the kind's own, and no lists. A row of type
 * LIST(what) takes the kinds from the table what_kinds; its field is text: the
 * list as libconfig writes it, in one line, each item with all its members,
 * defaults included, in the order of the schema. So lists that mean the same
 * are equal texts. "()" is an empty list. On the command line the same is
 * written: 'algorithms=({name="ema";})'. Where items have no name, one may be
 * just the value of its first member, and the list an array:
 * plugins = [ "a.so", "b.so" ].
 *
 * Everything is checked when settings are loaded; errors name the place, the
 * setting, which item, and the member:
 *
 *   run.cfg:7: algorithms: item 2 (ema): unknown setting 'half_lif'; did you
 *   mean 'half_life'? */
#pragma once

#include "src/base/err.h"
#include "src/base/settings/settings.h"

/* How many items the text of a list has, which settings_load() has made. */
enum err settings_list_count(const struct setting *setting, const char *text,
                             int *count);

/* Which of the setting's kinds item `index`, from 0 on, is of, by its place in
 * the table; and its members, into the struct of that kind unless `out` is
 * NULL. */
enum err settings_list_item(const struct setting *setting, const char *text,
                            int index, int *kind, void *out);
