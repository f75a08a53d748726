/* Puts a file of S3 in parts, and finds uploads that were not ended.
 *
 * An upload is begun, which has a number, each part is put with it, and a last
 * request puts them together. Until then there is nothing under the name. An upload
 * that was begun and not ended stays in the service with its parts; so whoever puts
 * the file again asks for it first. The answer to the last request may be lost
 * although it was done: then there is no such upload any more, and the file has its
 * length. */
#include "src/data/remote/store_write_impl.h"

#include <assert.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/digest.h"
#include "src/base/new.h"

enum err store_uploads(struct store *store, const char *prefix,
                       enum err (*each)(void *arg, const char *name,
                                        const char *id),
                       void *arg, int *count)
{
    enum err rc = ERR_OK;
    char folder[FSIO_PATH_MAX + 1];
    struct buffer query = { 0 };
    struct store_send send = { .header = NULL };
    size_t at = 0, bytes = 0;
    const char *inside = NULL;
    *count = 0;
    store_folder(store, folder);
    TRY_OUT(store_say(&query, "prefix="));
    TRY_OUT(store_say_value(&query, folder));
    TRY_OUT(store_say_value(&query, prefix));
    TRY_OUT(buffer_add(&query, "&uploads=", sizeof "&uploads="));
    TRY_OUT(store_ask(store, "GET", NULL, (const char *)query.data, NULL, 0,
                      &send));
    while (store_next(&send.answer, &at, "Upload", &inside, &bytes)) {
        char key[STORE_ID_BYTES * 6], id[STORE_ID_BYTES];
        store_url_tag(inside, bytes, "Key", key, sizeof key);
        store_url_tag(inside, bytes, "UploadId", id, sizeof id);
        store_plain_xml(key);
        store_plain_xml(id);
        ++*count;
        if (id[0] != '\0' && strncmp(key, folder, strlen(folder)) == 0)
            TRY_OUT(each(arg, key + strlen(folder), id));
    }
out:
    buffer_free(&send.answer);
    buffer_free(&query);
    return rc;
}

static enum err store_take_id(void *arg, const char *name, const char *id)
{
    struct store_parts *parts = arg;
    if (strcmp(name, parts->name) == 0)
        snprintf(parts->id, sizeof parts->id, "%s", id);
    return ERR_OK;
}

enum err store_ask_upload(struct store_parts *parts, const char *method,
                          int part, const void *data, size_t bytes,
                          struct store_send *send)
{
    enum err rc = ERR_OK;
    char number[40] = "";
    struct buffer query = { 0 };
    if (part > 0)
        snprintf(number, sizeof number, "partNumber=%d&", part);
    TRY_OUT(store_say(&query, number));
    TRY_OUT(store_say(&query, "uploadId="));
    TRY_OUT(store_say_value(&query, parts->id));
    TRY_OUT(buffer_add(&query, "", 1));
    rc = store_ask(parts->store, method, parts->name, (const char *)query.data,
                   data, bytes, send);
out:
    buffer_free(&query);
    return rc;
}

/* The upload to go on with and its parts, or a new one. */
static enum err store_parts_begin(struct store_parts *parts)
{
    struct store_send send = { .header = NULL };
    size_t at = 0, bytes = 0;
    const char *inside = NULL;
    char text[STORE_ID_BYTES];
    int count;
    TRY(store_uploads(parts->store, parts->name, store_take_id, parts, &count));
    bool old = parts->id[0] != '\0';
    enum err rc = old ? store_ask_upload(parts, "GET", 0, NULL, 0, &send)
                      : store_ask(parts->store, "POST", parts->name,
                                  "uploads=", NULL, 0, &send);
    if (rc == ERR_OK && !old) {
        store_url_tag((const char *)send.answer.data, send.answer.bytes,
                      "UploadId", parts->id, sizeof parts->id);
        store_plain_xml(parts->id);
        if (parts->id[0] == '\0')
            rc = err_set(ERR_DATA, "an upload without a number");
    }
    while (old && rc == ERR_OK &&
           store_next(&send.answer, &at, "Part", &inside, &bytes)) {
        store_url_tag(inside, bytes, "PartNumber", text, sizeof text);
        int number = atoi(text);
        store_url_tag(inside, bytes, "ETag", text, sizeof text);
        store_plain_xml(text);
        if (number >= 1 && number <= parts->count &&
            strlen(text) < sizeof parts->etags[0])
            memcpy(parts->etags[number - 1], text, strlen(text) + 1);
    }
    buffer_free(&send.answer);
    return rc;
}

/* "\"MD5\"", as S3 calls a part that it keeps unencrypted. */
enum err store_md5(const void *data, size_t bytes, uint8_t raw[16])
{
    return EVP_Digest(data, bytes, raw, NULL, EVP_md5(), NULL) == 1
               ? ERR_OK
               : err_set(ERR_UNSUPPORTED, "libcrypto has no MD5");
}

static enum err store_part_put(struct store_parts *parts, int number)
{
    struct store_send send = { .header = NULL };
    uint8_t raw[16];
    char hex[33], quoted[40];
    char *etag = parts->etags[number - 1];
    int64_t at = (number - 1) * parts->part_bytes;
    int64_t bytes = parts->bytes - at < parts->part_bytes ? parts->bytes - at
                                                          : parts->part_bytes;
    TRY(fsio_pread(parts->fd, parts->room, (size_t)bytes, at, parts->path));
    if (etag[0] != '\0') {
        TRY(store_md5(parts->room, (size_t)bytes, raw));
        digest_hex(raw, sizeof raw, hex);
        snprintf(quoted, sizeof quoted, "\"%s\"", hex);
        if (strcmp(etag, quoted) == 0)
            return ERR_OK;
    }
    enum err rc = store_ask_upload(parts, "PUT", number, parts->room,
                                   (size_t)bytes, &send);
    memcpy(etag, send.etag, sizeof send.etag);
    buffer_free(&send.answer);
    if (rc == ERR_OK && etag[0] == '\0')
        rc = err_set(ERR_DATA, "%s/%s: a part without an ETag",
                     parts->store->address, parts->name);
    return rc;
}

static enum err store_parts_end(struct store_parts *parts)
{
    enum err rc = ERR_OK;
    char line[64];
    struct buffer text = { 0 };
    struct store_send send = { .header = NULL };
    TRY_OUT(store_say(&text, "<CompleteMultipartUpload>"));
    for (int i = 0; i < parts->count; i++) {
        snprintf(line, sizeof line, "<Part><PartNumber>%d</PartNumber><ETag>",
                 i + 1);
        TRY_OUT(store_say(&text, line));
        TRY_OUT(store_say_xml(&text, parts->etags[i]));
        TRY_OUT(store_say(&text, "</ETag></Part>"));
    }
    TRY_OUT(store_say(&text, "</CompleteMultipartUpload>"));
    rc = store_ask_upload(parts, "POST", 0, text.data, text.bytes, &send);
    if (rc == ERR_DATA) { /* it may have been done, and the answer lost */
        struct err_kept kept;
        int64_t there = -1;
        err_keep(&kept, rc);
        bool done = store_size(parts->store, parts->name, &there) == ERR_OK &&
                    there == parts->bytes;
        rc = done ? ERR_OK : err_again(&kept);
    }
out:
    buffer_free(&send.answer);
    buffer_free(&text);
    return rc;
}

enum err store_put_parts(struct store_parts *parts)
{
    enum err rc = ERR_OK;
    int64_t least = parts->bytes / STORE_PARTS_MAX + 1;
    parts->part_bytes = least > STORE_PART_BYTES ? least : STORE_PART_BYTES;
    parts->count =
        (int)((parts->bytes + parts->part_bytes - 1) / parts->part_bytes);
    assert(parts->count >= 1 && parts->count <= STORE_PARTS_MAX);
    TRY_OUT(new_zeroed(&parts->etags, (size_t)parts->count));
    TRY_OUT(new_room(&parts->room, (size_t)parts->part_bytes));
    TRY_OUT(store_parts_begin(parts));
    for (int number = 1; number <= parts->count; number++)
        TRY_OUT(store_part_put(parts, number));
    rc = store_parts_end(parts);
out:
    free(parts->room);
    free(parts->etags);
    return rc;
}
