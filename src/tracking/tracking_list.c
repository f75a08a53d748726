/* Makes the record of a step, name by name.
 *
 * A name is cleaned and looked up once; after that it is its number. By that
 * number `place` tells where the name stands in the record that is being made,
 * so a name that is told twice has the later value, and clearing a record
 * undoes just the places that were used. All arrays have room for every name
 * that was ever seen: a run's names settle in its first steps, and nothing is
 * allocated from then on. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/array.h"
#include "src/base/new.h"
#include "src/tracking/tracking_record.h"

struct tracking_list {
    struct tracking_map *names;
    int *place;  /* [room] of a name's number: in scalars + 1; 0: nowhere */
    int *number; /* [room] of a scalar */
    int room;    /* also of record.scalars */
    struct tracking_record record;
    struct tracking_text texts[TRACKING_TEXTS_MAX];
    int64_t left_out;
};

static bool may_stand(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
}

/* Words that a file system would take for folders of its own, or that are
 * none, become "_": names are paths in some trackers. */
bool tracking_name_clean(const char *name, char out[TRACKING_NAME_BYTES])
{
    size_t used = 0;
    size_t word = 0; /* where it begins */
    bool dots = true;
    const char *from = name;
    for (;; from++) {
        bool last = *from == '\0' || used + 3 > TRACKING_NAME_BYTES;
        bool ends = last || *from == '/';
        if (ends && dots) {
            used = word;
            out[used++] = '_';
        }
        if (last)
            break;
        out[used++] = ends || may_stand(*from) ? *from : '_';
        dots = ends || (dots && *from == '.');
        if (ends)
            word = used;
    }
    out[used] = '\0';
    return strcmp(out, name) == 0;
}

enum err tracking_list_create(struct tracking_list **out)
{
    struct tracking_list *list = NULL;
    TRY(new_zeroed(&list, 1));
    list->record.texts = list->texts;
    enum err rc = tracking_map_create(&list->names);
    return new_or_none(rc, list, out, tracking_list_destroy);
}

void tracking_list_destroy(struct tracking_list *list)
{
    if (list == NULL)
        return;
    tracking_list_clear(list);
    tracking_map_destroy(list->names);
    free(list->record.scalars);
    free(list->place);
    free(list->number);
    free(list);
}

void tracking_list_clear(struct tracking_list *list)
{
    if (list == NULL)
        return;
    for (int i = 0; i < list->record.count; i++)
        list->place[list->number[i]] = 0;
    for (int i = 0; i < list->record.text_count; i++)
        free(list->texts[i].text);
    list->record.count = 0;
    list->record.text_count = 0;
}

/* Room for one name more than there are, in all that is counted by them. */
static bool has_room(struct tracking_list *list)
{
    int count = tracking_map_count(list->names) + 1;
    int scalars = list->room, place = list->room, number = list->room;
    if (count <= list->room)
        return true;
    if (array_room(&list->record.scalars, &scalars, count) != ERR_OK ||
        array_room(&list->number, &number, count) != ERR_OK ||
        array_room(&list->place, &place, count) != ERR_OK)
        return false;
    memset(list->place + list->room, 0,
           (size_t)(place - list->room) * sizeof *list->place);
    assert(scalars == place && number == place); /* grown alike */
    list->room = place;
    return true;
}

void tracking_list_add(struct tracking_list *list, const char *name,
                       double value)
{
    char clean[TRACKING_NAME_BYTES];
    int number = -1;
    if (list == NULL)
        return;
    (void)tracking_name_clean(name, clean);
    if (!has_room(list) ||
        tracking_map_add(list->names, clean, &number) != ERR_OK) {
        list->left_out++;
        return;
    }
    struct tracking_record *record = &list->record;
    assert(number < list->room && list->place[number] <= record->count);
    if (list->place[number] == 0) {
        list->number[record->count] = number;
        record->scalars[record->count].name =
            tracking_map_name(list->names, number);
        list->place[number] = ++record->count;
    }
    record->scalars[list->place[number] - 1].value = value;
}

void tracking_list_text(struct tracking_list *list, const char *name,
                        const char *text, size_t bytes)
{
    char clean[TRACKING_NAME_BYTES];
    int number = -1;
    if (list == NULL)
        return;
    (void)tracking_name_clean(name, clean);
    if (bytes > TRACKING_TEXT_BYTES) {
        bytes = TRACKING_TEXT_BYTES;
        /* not amid a character */
        while (bytes > 0 && ((unsigned char)text[bytes] & 0xc0) == 0x80)
            bytes--;
    }
    char *copy = malloc(bytes + 1);
    if (copy == NULL || list->record.text_count == TRACKING_TEXTS_MAX ||
        !has_room(list) ||
        tracking_map_add(list->names, clean, &number) != ERR_OK) {
        free(copy);
        list->left_out++;
        return;
    }
    memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    list->texts[list->record.text_count++] = (struct tracking_text){
        .name = tracking_map_name(list->names, number),
        .text = copy,
        .bytes = bytes,
    };
}

int64_t tracking_list_left_out(const struct tracking_list *list)
{
    return list->left_out;
}

const struct tracking_record *
tracking_list_record(const struct tracking_list *list)
{
    return &list->record;
}

struct tracking_map *tracking_list_names(const struct tracking_list *list)
{
    return list->names;
}
