/* Writes JSON as Python does, which escapes in lower case what jansson escapes in
 * upper case, and DEL as well. */
#include "src/data/mds/mds_text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum err mds_text_add(struct buffer *text, json_t *value)
{
    enum err rc = ERR_OK;
    char *ascii =
        json_dumps(value, JSON_SORT_KEYS | JSON_ENSURE_ASCII | JSON_ENCODE_ANY);
    char *rest = ascii, *part;
    json_decref(value);
    if (ascii == NULL)
        return err_set(ERR_MEMORY, "no memory for a text of JSON");
    for (char *at = ascii; (at = strchr(at, '\\')) != NULL; at += 2)
        for (int i = 2; at[1] == 'u' && i < 6; i++)
            at[i] = (char)tolower((unsigned char)at[i]);
    while (rc == ERR_OK && (part = strsep(&rest, "\x7f")) != NULL) {
        rc = buffer_add(text, part, strlen(part));
        if (rc == ERR_OK && rest != NULL)
            rc = buffer_add(text, "\\u007f", 6);
    }
    free(ascii);
    return rc;
}
