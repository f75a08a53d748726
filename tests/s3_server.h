/* What the tests' HTTP server knows of S3: buckets are folders of its folder, keys
 * files below them. PUT, DELETE, uploads in parts (folders .up-N), lists by pages of
 * three, removal of many. A file appears whole. Signatures are not looked at. */
#pragma once

#include <dirent.h>
#include <openssl/evp.h>

struct s3_call {
    struct http_server *server;
    int fd;
    char method[16], asked[1024], path[1024]; /* decoded */
    char query[1024];                         /* not */
    char *body;
    size_t bytes;
};

static inline bool http_answer(int fd, int status, const char *more,
                               const char *body);

static inline void s3_decode(char *text)
{
    char *to = text;
    for (const char *from = text; *from != '\0'; from++) {
        unsigned byte = 0;
        bool coded = *from == '%' && sscanf(from + 1, "%2x", &byte) == 1;
        *to++ = coded ? (char)byte : *from;
        from += coded ? 2 : 0;
    }
    *to = '\0';
}

static inline bool s3_value(const struct s3_call *call, const char *name,
                            char *out, size_t bytes)
{
    char mark[64];
    out[0] = '\0';
    snprintf(mark, sizeof mark, "%s=", name);
    for (const char *at = call->query; at != NULL; at = strchr(at, '&')) {
        at += *at == '&';
        if (strncmp(at, mark, strlen(mark)) != 0)
            continue;
        snprintf(out, bytes, "%.*s", (int)strcspn(at + strlen(mark), "&"),
                 at + strlen(mark));
        s3_decode(out);
        return true;
    }
    return false;
}

static inline void s3_write(const char *path, const char *data, size_t bytes)
{
    static atomic_int number;
    char made[2200], *slash;
    snprintf(made, sizeof made, "%.2100s", path);
    for (slash = strchr(made + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(made, 0777);
        *slash = '/';
    }
    snprintf(made, sizeof made, "%.2100s.put%d", path, number++);
    FILE *file = fopen(made, "wb");
    if (file == NULL || fwrite(data, 1, bytes, file) != bytes ||
        fclose(file) != 0 || rename(made, path) != 0)
        perror("s3 server");
}

static inline char *s3_read(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    char *data = NULL;
    *bytes = 0;
    if (file == NULL)
        return NULL;
    fseek(file, 0, SEEK_END);
    *bytes = (size_t)ftell(file);
    rewind(file);
    data = malloc(*bytes + 1);
    *bytes = fread(data, 1, *bytes, file);
    data[*bytes] = '\0';
    fclose(file);
    return data;
}

static inline void s3_etag(const char *data, size_t bytes, char out[40])
{
    unsigned char raw[16];
    char *to = out;
    EVP_Digest(data, bytes, raw, NULL, EVP_md5(), NULL);
    *to++ = '"';
    for (int i = 0; i < 16; i++)
        to += sprintf(to, "%02x", raw[i]);
    strcpy(to, "\"");
}

struct s3_keys {
    char key[4096][256];
    long long bytes[4096], changed[4096];
    int count;
};

static inline void s3_walk(const char *root, const char *below,
                           struct s3_keys *keys)
{
    char path[2600];
    snprintf(path, sizeof path, "%s/%s", root, below);
    DIR *dir = opendir(path);
    struct dirent *entry;
    struct stat status;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        char name[512];
        if (entry->d_name[0] == '.' || strstr(entry->d_name, ".put") != NULL)
            continue;
        snprintf(name, sizeof name, "%.250s%s%.250s", below, *below ? "/" : "",
                 entry->d_name);
        snprintf(path, sizeof path, "%s/%s", root, name);
        if (stat(path, &status) != 0)
            continue;
        if (S_ISDIR(status.st_mode)) {
            s3_walk(root, name, keys);
        } else if (keys->count < 4096) {
            snprintf(keys->key[keys->count], 256, "%.255s", name);
            keys->changed[keys->count] = status.st_mtime;
            keys->bytes[keys->count++] = status.st_size;
        }
    }
    if (dir != NULL)
        closedir(dir);
}

/* One page of three names that follow the token. */
static inline bool s3_list(const struct s3_call *call, const char *root)
{
    char prefix[1024], after[1024], text[4096] = "<ListBucketResult>";
    char last[600] = "";
    struct s3_keys *keys = calloc(1, sizeof *keys);
    s3_value(call, "prefix", prefix, sizeof prefix);
    if (!s3_value(call, "continuation-token", after, sizeof after))
        s3_value(call, "start-after", after, sizeof after);
    bool folders = strstr(call->query, "delimiter=") != NULL;
    s3_walk(root, "", keys);
    for (int shown = 0;; shown++) {
        char name[600], best[600] = "";
        long long bytes = -1, changed = 0;
        for (int k = 0; k < keys->count; k++) {
            const char *end = strchr(keys->key[k] + strlen(prefix), '/');
            bool folder = folders && end != NULL;
            if (strncmp(keys->key[k], prefix, strlen(prefix)) != 0)
                continue;
            snprintf(name, sizeof name, "%.*s",
                     folder ? (int)(end + 1 - keys->key[k]) : 255,
                     keys->key[k]);
            if (strcmp(name, shown == 0 ? after : last) > 0 &&
                (best[0] == '\0' || strcmp(name, best) < 0)) {
                snprintf(best, sizeof best, "%s", name);
                bytes = folder ? -1 : keys->bytes[k];
                changed = keys->changed[k];
            }
        }
        if (best[0] == '\0')
            break;
        char *to = text + strlen(text);
        if (shown == 3)
            sprintf(to, "<NextContinuationToken>%s</NextContinuationToken>",
                    last);
        else if (bytes < 0)
            sprintf(to, "<CommonPrefixes><Prefix>%s</Prefix></CommonPrefixes>",
                    best);
        else
            sprintf(to,
                    "<Contents><Key>%s</Key><ETag>&quot;%llx&quot;</ETag>"
                    "<Size>%lld</Size></Contents>",
                    best, changed, bytes);
        if (shown == 3)
            break;
        memcpy(last, best, sizeof last);
    }
    free(keys);
    return http_answer(call->fd, 200, "", strcat(text, "</ListBucketResult>"));
}

/* Uploads that were begun: .up-N has the key in `key` and the parts. */
static inline bool s3_uploads(const struct s3_call *call, const char *root)
{
    char prefix[1024], path[2600], text[4096] = "<ListMultipartUploadsResult>";
    size_t bytes;
    s3_value(call, "prefix", prefix, sizeof prefix);
    DIR *dir = opendir(root);
    struct dirent *entry;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        snprintf(path, sizeof path, "%s/%s/key", root, entry->d_name);
        char *key = strncmp(entry->d_name, ".up-", 4) == 0
                        ? s3_read(path, &bytes)
                        : NULL;
        if (key != NULL && strncmp(key, prefix, strlen(prefix)) == 0 &&
            strlen(text) < 3000)
            sprintf(text + strlen(text),
                    "<Upload><Key>%s</Key><UploadId>%s</UploadId></Upload>",
                    key, entry->d_name);
        free(key);
    }
    if (dir != NULL)
        closedir(dir);
    return http_answer(call->fd, 200, "",
                       strcat(text, "</ListMultipartUploadsResult>"));
}

static inline bool s3_upload(const struct s3_call *call, const char *folder,
                             const char *file, const char *up)
{
    char path[2600], part[32], more[80], etag[40], text[65536] = "<X>";
    size_t bytes;
    snprintf(path, sizeof path, "%s/key", up);
    if (access(path, F_OK) != 0)
        return http_answer(call->fd, 404, "",
                           "<Error><Code>NoSuchUpload</Code></Error>");
    if (s3_value(call, "partNumber", part, sizeof part)) {
        snprintf(path, sizeof path, "%s/%05d", up, atoi(part));
        s3_write(path, call->body, call->bytes);
        s3_etag(call->body, call->bytes, etag);
        snprintf(more, sizeof more, "ETag: %s\r\n", etag);
        return http_answer(call->fd, 200, more, "");
    }
    FILE *whole = NULL;
    char made[2200];
    snprintf(made, sizeof made, "%s/whole", up);
    if (call->method[0] == 'P')
        whole = fopen(made, "wb");
    for (int n = 1; n <= 1000; n++) {
        snprintf(path, sizeof path, "%s/%05d", up, n);
        char *data = s3_read(path, &bytes);
        if (data != NULL && whole != NULL)
            fwrite(data, 1, bytes, whole);
        s3_etag(data, bytes, etag);
        if (data != NULL)
            sprintf(text + strlen(text),
                    "<Part><PartNumber>%d</PartNumber><ETag>&quot;%.32s&quot;"
                    "</ETag></Part>",
                    n, etag + 1);
        free(data);
    }
    if (whole != NULL) {
        fclose(whole);
        snprintf(path, sizeof path, "%s.", file);
        s3_write(path, "", 0); /* makes the folders */
        unlink(path);
        rename(made, file);
    }
    if (call->method[0] != 'G') {
        snprintf(path, sizeof path, "rm -rf '%s'", up);
        if (system(path) != 0)
            perror(folder);
    }
    return http_answer(call->fd, call->method[0] == 'D' ? 204 : 200, "",
                       strcat(text, "</X>"));
}

static inline bool s3_serve(const struct s3_call *call)
{
    static atomic_int uploads;
    char root[1200], file[2400], up[1300], id[128], text[400];
    size_t bucket = 1 + strcspn(call->path + 1, "/");
    snprintf(root, sizeof root, "%.900s%.*s", call->server->folder, (int)bucket,
             call->path);
    snprintf(file, sizeof file, "%.900s%.1400s", call->server->folder,
             call->path);
    if (access(root, F_OK) != 0)
        return http_answer(call->fd, 404, "",
                           "<Error><Code>NoSuchBucket</Code></Error>");
    if (s3_value(call, "uploadId", id, sizeof id)) {
        snprintf(up, sizeof up, "%.1100s/%.64s", root, id);
        return s3_upload(call, root, file, up);
    }
    bool begins = strcmp(call->query, "uploads=") == 0;
    if (strcmp(call->method, "GET") == 0)
        return strstr(call->query, "uploads=") != NULL ? s3_uploads(call, root)
                                                       : s3_list(call, root);
    if (begins) {
        int number = uploads++;
        snprintf(up, sizeof up, "%.1100s/.up-%d/key", root, number);
        s3_write(up, call->path + bucket + 1, strlen(call->path + bucket + 1));
        snprintf(text, sizeof text, "<X><UploadId>.up-%d</UploadId></X>",
                 number);
        return http_answer(call->fd, 200, "", text);
    }
    if (strcmp(call->method, "PUT") == 0)
        s3_write(file, call->body, call->bytes);
    else if (strcmp(call->method, "DELETE") == 0)
        unlink(file);
    for (char *key = strstr(call->body, "<Key>");
         strcmp(call->query, "delete=") == 0 && key != NULL;
         key = strstr(key + 1, "<Key>")) {
        snprintf(file, sizeof file, "%s/%.*s", root, (int)strcspn(key + 5, "<"),
                 key + 5);
        for (char *coded = file; (coded = strstr(coded, "&amp;")) != NULL;
             coded++)
            memmove(coded + 1, coded + 5, strlen(coded + 5) + 1);
        unlink(file);
        *strrchr(file, '/') = '\0';
        rmdir(file);
    }
    return http_answer(call->fd, call->method[0] == 'D' ? 204 : 200, "", "");
}
