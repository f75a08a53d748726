/* Whether the index that a cache has is still the address's own: asked once by each
 * who comes, by fetching it again, for no other answer is the same of all schemes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/log.h"
#include "src/data/remote/cache_impl.h"

#define ASK_S 30.0 /* that a store is asked for what is there already */

void cache_ask_begin(struct cache *cache, bool there)
{
    double most_s = cache->options.deadline_s;
    store_deadline(cache->store, there ? fmin(ASK_S, most_s) : most_s);
}

bool cache_ask_away(const struct cache *cache, enum err rc)
{
    if (rc != ERR_IO || store_ends(cache->store))
        return false;
    log_warn(
        "%s: whether it has changed cannot be asked, and what %s has of it "
        "is used: %s",
        store_address(cache->store), cache->in.path, err_text());
    return true;
}

enum err cache_ask(struct cache *cache, const char *index)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX], new[FSIO_PATH_MAX] = "", *was = NULL, *is = NULL;
    size_t was_bytes = 0, is_bytes = 0;
    int64_t bytes;
    TRY(fsio_path(path, "%s/%s", cache->folder, index));
    TRY(fsio_path(new, "%s.%ld-%d.part", path, (long)getpid(), cache->users));
    cache_ask_begin(cache, true);
    TRY_OUT(store_get(cache->store, index, new, -1, &bytes));
    TRY_OUT(fsio_read_file(new, STORE_BYTES_MAX, &is, &is_bytes));
    TRY_OUT(fsio_read_file(path, STORE_BYTES_MAX, &was, &was_bytes));
    if (was_bytes != is_bytes || memcmp(was, is, is_bytes) != 0)
        rc = err_set(ERR_DATA,
                     "%s: is another data set than a while ago, and another "
                     "process of this node still uses the older one, in %s: "
                     "begin again when it has ended, or with another folder "
                     "(data.cache)",
                     store_address(cache->store), cache->in.path);
out:
    (void)unlink(new);
    free(was);
    free(is);
    cache_ask_begin(cache, false);
    return cache_ask_away(cache, rc) ? ERR_OK : rc;
}
