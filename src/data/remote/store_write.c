/* Puts, lists and removes objects of S3. Answers are XML, of which a few tags are
 * wanted: no parser is needed. */
#include "src/data/remote/store_write_impl.h"

#include <assert.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"
#include "src/base/regular.h"

#define STORE_REMOVE_MOST 1000 /* of one request, by S3 */

enum err store_writable(const struct store *store)
{
    return store->scheme == &store_s3_scheme
               ? ERR_OK
               : err_set(ERR_USAGE,
                         "%s: only s3:// can be written to: give "
                         "s3://BUCKET/FOLDER",
                         store->address);
}

/* --- texts --- */

enum err store_say(struct buffer *text, const char *what)
{
    return buffer_add(text, what, strlen(what));
}

enum err store_say_value(struct buffer *text, const char *value)
{
    for (const char *c = value; *c != '\0'; c++) {
        char coded[4] = { *c, '\0' };
        if (*c == '/' || !store_url_is_plain(*c))
            snprintf(coded, sizeof coded, "%%%02X", (unsigned char)*c);
        TRY(store_say(text, coded));
    }
    return ERR_OK;
}

static const struct {
    char c;
    const char *name;
} store_entities[] = { { '&', "&amp;" },  { '<', "&lt;" },   { '>', "&gt;" },
                       { '"', "&quot;" }, { '\'', "&#39;" }, { '\'', "&apos;" },
                       { '"', "&#34;" } };
#define STORE_ENTITIES (sizeof store_entities / sizeof store_entities[0])

enum err store_say_xml(struct buffer *text, const char *value)
{
    for (const char *c = value; *c != '\0'; c++) {
        char one[2] = { *c, '\0' };
        const char *said = one;
        for (size_t e = 0; e < STORE_ENTITIES && said == one; e++)
            if (store_entities[e].c == *c)
                said = store_entities[e].name;
        TRY(store_say(text, said));
    }
    return ERR_OK;
}

void store_plain_xml(char *text)
{
    char *to = text;
    for (const char *from = text; *from != '\0';) {
        size_t e = 0;
        while (e < STORE_ENTITIES && strncmp(from, store_entities[e].name,
                                             strlen(store_entities[e].name)))
            e++;
        *to++ = e < STORE_ENTITIES ? store_entities[e].c : *from;
        from += e < STORE_ENTITIES ? strlen(store_entities[e].name) : 1;
    }
    *to = '\0';
}

bool store_next(const struct buffer *text, size_t *at, const char *tag,
                const char **inside, size_t *bytes)
{
    char begin[40], end[40];
    int length = snprintf(begin, sizeof begin, "<%s>", tag);
    snprintf(end, sizeof end, "</%s>", tag);
    if (*at >= text->bytes)
        return false;
    const char *from = (const char *)text->data + *at;
    const char *open = memmem(from, text->bytes - *at, begin, (size_t)length);
    if (open == NULL)
        return false;
    open += length;
    size_t left = text->bytes - (size_t)(open - (const char *)text->data);
    const char *close = memmem(open, left, end, (size_t)length + 1);
    if (close == NULL)
        return false;
    *inside = open;
    *bytes = (size_t)(close - open);
    *at = (size_t)(close - (const char *)text->data) + (size_t)length + 1;
    return true;
}

const char *store_folder(const struct store *store, char out[FSIO_PATH_MAX + 1])
{
    const char *path = store->url.path;
    snprintf(out, FSIO_PATH_MAX + 1, "%s%s", path + (path[0] == '/'),
             path[0] != '\0' ? "/" : "");
    return out;
}

/* --- requests --- */

enum err store_ask(struct store *store, const char *method, const char *name,
                   const char *query, const void *data, size_t bytes,
                   struct store_send *out)
{
    *out = (struct store_send){ .method = method,
                                .query = query,
                                .header = out->header,
                                .bucket = name == NULL,
                                .data = data,
                                .bytes = bytes };
    TRY(store_writable(store));
    return store_http_send(store, name != NULL ? name : "", out);
}

enum err store_put(struct store *store, const char *name, const void *data,
                   size_t bytes)
{
    struct store_send send = { .header = NULL };
    enum err rc = store_ask(store, "PUT", name, "", data, bytes, &send);
    buffer_free(&send.answer);
    return rc;
}

void store_names_free(struct store_names *names)
{
    for (int i = 0; i < names->count; i++)
        free(names->list[i].name);
    free(names->list);
    *names = (struct store_names){ 0 };
}

static enum err store_no_list(const struct store *store)
{
    return err_set(ERR_IO, "%s: the answer is no whole list", store->address);
}

/* One page's objects, or folders. */
static enum err store_take_names(const struct store *store,
                                 const struct buffer *page, bool folders,
                                 const char *folder, struct store_names *out)
{
    size_t at = 0, bytes = 0;
    const char *inside = NULL;
    while (store_next(page, &at, folders ? "CommonPrefixes" : "Contents",
                      &inside, &bytes)) {
        char key[STORE_ID_BYTES * 6], size[32], etag[64];
        store_url_tag(inside, bytes, folders ? "Prefix" : "Key", key,
                      sizeof key);
        store_url_tag(inside, bytes, "Size", size, sizeof size);
        store_url_tag(inside, bytes, "ETag", etag, sizeof etag);
        if (etag[0] == '\0')
            store_url_tag(inside, bytes, "LastModified", etag, sizeof etag);
        size_t digits = strspn(size, "0123456789");
        if (!folders && (digits == 0 || digits > 18 || size[digits] != '\0'))
            return store_no_list(store);
        store_plain_xml(key);
        store_plain_xml(etag);
        if (strncmp(key, folder, strlen(folder)) != 0)
            continue;
        TRY(array_room(&out->list, &out->capacity, out->count + 1));
        struct store_name *one = &out->list[out->count];
        one->bytes = folders ? -1 : strtoll(size, NULL, 10);
        snprintf(one->etag, sizeof one->etag, "%.47s", etag);
        TRY(new_text(&one->name, key + strlen(folder)));
        out->count++;
    }
    return ERR_OK;
}

static enum err store_list_query(const char *folder, const char *prefix,
                                 bool folders, const char *after,
                                 const char *token, struct buffer *query)
{
    query->bytes = 0;
    if (token[0] != '\0') {
        TRY(store_say(query, "continuation-token="));
        TRY(store_say_value(query, token));
        TRY(store_say(query, "&"));
    }
    TRY(store_say(query, folders ? "delimiter=%2F&list-type=2&prefix="
                                 : "list-type=2&prefix="));
    TRY(store_say_value(query, folder));
    TRY(store_say_value(query, prefix));
    if (after[0] != '\0') {
        TRY(store_say(query, "&start-after="));
        TRY(store_say_value(query, folder));
        TRY(store_say_value(query, after));
    }
    return buffer_add(query, "", 1);
}

/* Where the next page begins; "": it was the last. What is no list, or not all of it,
 * is never taken for an empty one. */
static enum err store_take_token(const struct store *store,
                                 const struct buffer *page,
                                 char token[STORE_ID_BYTES])
{
    static const char end[] = "</ListBucketResult>";
    const char *text = (const char *)page->data;
    char last[STORE_ID_BYTES], more[8];
    snprintf(last, sizeof last, "%s", token);
    store_url_tag(text, page->bytes, "IsTruncated", more, sizeof more);
    store_url_tag(text, page->bytes, "NextContinuationToken", token,
                  STORE_ID_BYTES);
    store_plain_xml(token);
    bool goes_on =
        token[0] != '\0' ? strcmp(token, last) != 0 : strcmp(more, "true") != 0;
    return goes_on && page->bytes > 0 &&
                   memmem(text, page->bytes, end, sizeof end - 1) != NULL
               ? ERR_OK
               : store_no_list(store);
}

/* Pages from the token on, until none is left or `pages` are there. */
static enum err store_list_pages(struct store *store, const char *prefix,
                                 bool folders, const char *after, int pages,
                                 struct store_names *out, bool *more)
{
    enum err rc = ERR_OK;
    char folder[FSIO_PATH_MAX + 1], token[STORE_ID_BYTES] = "";
    struct buffer query = { 0 };
    struct store_send send = { .header = NULL };
    *out = (struct store_names){ 0 };
    store_folder(store, folder);
    do {
        buffer_free(&send.answer);
        TRY_OUT(
            store_list_query(folder, prefix, folders, after, token, &query));
        TRY_OUT(store_ask(store, "GET", NULL, (const char *)query.data, NULL, 0,
                          &send));
        TRY_OUT(store_take_names(store, &send.answer, false, folder, out));
        TRY_OUT(store_take_names(store, &send.answer, true, folder, out));
        TRY_OUT(store_take_token(store, &send.answer, token));
    } while (token[0] != '\0' && --pages > 0 && out->count <= STORE_NAMES_MAX);
    *more = token[0] != '\0';
out:
    buffer_free(&send.answer);
    buffer_free(&query);
    if (rc != ERR_OK)
        store_names_free(out);
    return rc;
}

enum err store_list(struct store *store, const char *prefix, bool folders,
                    struct store_names *out)
{
    bool more;
    TRY(store_list_pages(store, prefix, folders, "", 2 * STORE_NAMES_MAX / 1000,
                         out, &more));
    if (!more)
        return ERR_OK;
    store_names_free(out);
    return err_set(ERR_DATA, "%s/%s: the list of what is there has no end",
                   store->address, prefix);
}

enum err store_list_page(struct store *store, const char *prefix, bool folders,
                         const char *after, struct store_names *out, bool *more)
{
    return store_list_pages(store, prefix, folders, after, 1, out, more);
}

enum err store_size(struct store *store, const char *name, int64_t *bytes)
{
    struct store_names names;
    bool more;
    *bytes = -1; /* where it is, it is the first that begins so */
    TRY(store_list_page(store, name, false, "", &names, &more));
    for (int i = 0; i < names.count; i++)
        if (strcmp(names.list[i].name, name) == 0)
            *bytes = names.list[i].bytes;
    store_names_free(&names);
    return ERR_OK;
}

/* --- a file --- */

enum err store_put_file(struct store *store, const char *name, const char *path,
                        int64_t bytes)
{
    struct store_parts parts = {
        .store = store, .name = name, .path = path, .fd = -1
    };
    char *data = NULL;
    enum err rc = ERR_OK;
    TRY_OUT(regular_open(path, &parts.fd, &parts.bytes));
    if (parts.bytes != bytes)
        TRY_OUT(err_set(ERR_DATA, "%s: has %lld bytes and not %lld", path,
                        (long long)parts.bytes, (long long)bytes));
    if (bytes > STORE_PART_BYTES) {
        rc = store_put_parts(&parts);
    } else {
        TRY_OUT(new_room(&data, (size_t)bytes + 1));
        TRY_OUT(fsio_pread(parts.fd, data, (size_t)bytes, 0, path));
        rc = store_put(store, name, data, (size_t)bytes);
    }
out:
    free(data);
    fsio_close(parts.fd);
    return rc;
}

/* --- removing --- */

static enum err store_abort(void *arg, const char *name, const char *id)
{
    struct store_parts parts = { .store = arg, .name = name };
    struct store_send send = { .header = NULL };
    snprintf(parts.id, sizeof parts.id, "%s", id);
    enum err rc = store_ask_upload(&parts, "DELETE", 0, NULL, 0, &send);
    buffer_free(&send.answer);
    return rc;
}

/* So many of a list by one request. */
static enum err store_remove_some(struct store *store, const char *folder,
                                  const struct store_name *list, int count)
{
    enum err rc = ERR_OK;
    uint8_t raw[16];
    char coded[32], header[64];
    struct buffer text = { 0 };
    struct store_send send = { .header = header };
    TRY_OUT(store_say(&text, "<Delete><Quiet>true</Quiet>"));
    for (int i = 0; i < count; i++) {
        TRY_OUT(store_say(&text, "<Object><Key>"));
        TRY_OUT(store_say_xml(&text, folder));
        TRY_OUT(store_say_xml(&text, list[i].name));
        TRY_OUT(store_say(&text, "</Key></Object>"));
    }
    TRY_OUT(store_say(&text, "</Delete>"));
    TRY_OUT(store_md5(text.data, text.bytes, raw));
    EVP_EncodeBlock((uint8_t *)coded, raw, sizeof raw);
    snprintf(header, sizeof header, "Content-MD5: %s", coded);
    rc =
        store_ask(store, "POST", NULL, "delete=", text.data, text.bytes, &send);
out:
    buffer_free(&send.answer);
    buffer_free(&text);
    return rc;
}

enum err store_remove(struct store *store, const char *first,
                      const char *prefix)
{
    enum err rc = ERR_OK;
    char folder[FSIO_PATH_MAX + 1];
    struct store_names names = { 0 };
    struct store_send send = { .header = NULL };
    int left = 1;
    assert(first[0] != '\0' && prefix[0] != '\0');
    TRY_OUT(store_ask(store, "DELETE", first, "", NULL, 0, &send));
    TRY_OUT(store_list(store, prefix, false, &names));
    store_folder(store, folder);
    for (int i = 0; i < names.count; i += STORE_REMOVE_MOST)
        TRY_OUT(store_remove_some(store, folder, names.list + i,
                                  names.count - i < STORE_REMOVE_MOST
                                      ? names.count - i
                                      : STORE_REMOVE_MOST));
    for (int pages = 0; pages < 100 && left > 0; pages++)
        TRY_OUT(store_uploads(store, prefix, store_abort, store, &left));
out:
    buffer_free(&send.answer);
    store_names_free(&names);
    return rc;
}
