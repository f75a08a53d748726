/* The table that the tests of ops have on a GPU, over a CPU table in its place:
 * every op is there, runs on the stream and is waited for, and operands that a
 * GPU would not reach are refused. That each op is forwarded to its namesake
 * with its arguments in order is what the tests of ops find out, which run on
 * the same table (gpu/rehearsal). */
#include "tests/gpu/managed.h"

#include "tests/kernel_check.h"

static struct {
    struct kernels table;
    const struct kernels *cpu;
    int stream; /* its address is the stream */
    int adds, waits, failures, releases, noises;
    int odd; /* the call of add that is wrong by a bit; 0: none */
    bool on_stream, noise;
    size_t scratch_bytes;
    enum err wait_rc;
} fake;

const struct kernels *const *__real_kernels_all(void);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void __real_free(void *memory);

static enum err add KERNEL_LIKE(add)
{
    fake.adds++;
    fake.on_stream = ctx->stream == &fake.stream;
    fake.scratch_bytes = ctx->scratch == NULL ? 0 : ctx->scratch_bytes;
    enum err rc = fake.cpu->add(ctx, dtype, n, a, scale, b, out);
    if (fake.adds == fake.odd)
        *(char *)out ^= 1;
    return rc;
}

static size_t scratch_bytes(const struct kernel_limits *limits)
{
    return limits->tokens == 1 ? 4096 : 0;
}

static enum err start(const struct kernels **inner, void **stream)
{
    fake.cpu = __real_kernels_all()[0];
    fake.table = *fake.cpu;
    fake.table.backend = "fake";
    fake.table.add = add;
    fake.table.scratch_bytes = scratch_bytes;
    fake.table.lion = NULL;
    *inner = &fake.table;
    *stream = &fake.stream;
    return ERR_OK;
}

static void *allocate(size_t bytes)
{
    return __real_aligned_alloc(256, (bytes + 255) / 256 * 256);
}

static void release(void *memory)
{
    fake.releases++;
    __real_free(memory);
}

static enum err wait_for(void *stream)
{
    fake.waits += stream == &fake.stream;
    return fake.wait_rc == ERR_OK ? ERR_OK
                                  : err_set(fake.wait_rc, "the stream is ill");
}

static void noise(bool on)
{
    fake.noises += on;
    fake.noise = on;
}

static void failed(const char *op)
{
    fake.failures += strcmp(op, "add") == 0;
}

const struct managed_source managed_source = { .start = start,
                                               .allocate = allocate,
                                               .release = release,
                                               .wait = wait_for,
                                               .noise = noise,
                                               .failed = failed };

static void check_members(const struct kernels *table)
{
    size_t missing = 0, count = 0;
#define CHECK_MEMBER(op, ...) missing += table->op == NULL, count++;
    KERNEL_OPS(CHECK_MEMBER)
    KERNEL_OPS_FP8(CHECK_MEMBER)
    tap_is_int((long long)missing, 0, "none of the table's %zu ops is NULL",
               count);
    tap_ok(kernels_all()[0] == fake.cpu && kernels_all()[1] == table &&
               kernels_all()[2] == NULL,
           "tests see the CPU's best table and this one");
    tap_is_str(table->backend, "fake", "it has the name of what it is over");
}

static void check_memory(void)
{
    char *piece = aligned_alloc(64, 100), *other = malloc(256);
    char here = 0;
    int before = fake.releases;
    tap_ok((uintptr_t)piece % 256 == 0 && managed_holds(piece) &&
               managed_holds(piece + 100),
           "a piece of aligned_alloc's is held to its end");
    tap_ok(!managed_holds(piece + 101) && !managed_holds(piece - 1) &&
               !managed_holds(other) && !managed_holds(&here),
           "what is beside it, malloc's or on the stack is not");
    free(other);
    tap_is_int(fake.releases, before, "free of another is the library's");
    free(piece);
    tap_is_int(fake.releases, before + 1, "free gives the piece back");
    piece = aligned_alloc(64, 0);
    tap_ok(piece != NULL && managed_holds(piece), "a piece may have no bytes");
    free(piece);
    free(NULL);
}

static void check_calls(const struct kernels *table)
{
    struct kernel_ctx ctx = { .threads = 1 };
    float *a = CHECK_HELD(float, 1, 2), *b = CHECK_HELD(float, 10, 20);
    float *out = check_poisoned(2), here[2] = { 0 };
    tap_ok(table->add(&ctx, DTYPE_F32, 2, a, 2, b, out) == ERR_OK &&
               out[0] == 21 && out[1] == 42,
           "an op gets its arguments");
    tap_ok(fake.on_stream && fake.adds == 1 && fake.waits == 1 &&
               ctx.stream == NULL,
           "on the stream, which is waited for");
    tap_is_int((long long)fake.scratch_bytes, 4096,
               "with scratch, which the caller has none of");
    tap_ok(table->add(&ctx, DTYPE_F32, 2, a, 2, here, out) == ERR_USAGE &&
               strstr(err_text(), "pointer 1") != NULL,
           "an operand on the stack is refused: %s", err_text());
    ctx.scratch = here;
    tap_ok(table->add(&ctx, DTYPE_F32, 2, a, 2, b, out) == ERR_USAGE &&
               strstr(err_text(), "scratch") != NULL,
           "and scratch there: %s", err_text());
    ctx.scratch = NULL;
    tap_ok(fake.adds == 1 && fake.waits == 1 && fake.failures == 2,
           "without a call, and the test is told");
    fake.wait_rc = ERR_INTERNAL;
    tap_ok(table->add(&ctx, DTYPE_F32, 2, a, 2, b, out) == ERR_INTERNAL &&
               fake.failures == 3,
           "what fails on the stream fails the op");
    fake.wait_rc = ERR_OK;
    const struct lion step = { .lr = 1 };
    tap_ok(table->lion(&ctx, DTYPE_F32, 2, &step, a, b,
                       (float *[]){ out, NULL }) == ERR_UNSUPPORTED &&
               fake.failures == 3,
           "an op that is not there is one that tests skip: %s", err_text());
    free(out);
    free(b);
    free(a);
}

/* The same op again, in place here, beside noise; one that changes is told. */
static void check_again(const struct kernels *table)
{
    struct kernel_ctx ctx = { .threads = 1 };
    float *a = CHECK_HELD(float, 1, 2), *b = CHECK_HELD(float, 10, 20);
    setenv("TESSERA_GPU_REPEAT", "5", 1);
    fake.adds = fake.failures = 0;
    tap_ok(table->add(&ctx, DTYPE_F32, 2, a, 2, b, a) == ERR_OK && a[0] == 21 &&
               a[1] == 42 && fake.adds == 5 && fake.failures == 0,
           "an op can be done again on what its operands were");
    tap_ok(fake.noises == 4 && !fake.noise, "beside noise, but for the first");
    fake.adds = 0;
    fake.odd = 3;
    tap_ok(table->add(&ctx, DTYPE_F32, 2, a, 2, b, a) == ERR_OK &&
               fake.adds == 3 && fake.failures == 1,
           "other bits are a failure: %s", err_text());
    fake.odd = 0;
    unsetenv("TESSERA_GPU_REPEAT");
    free(b);
    free(a);
}

int main(void)
{
    const struct kernels *table = managed_table();
    check_members(table);
    check_memory();
    check_calls(table);
    check_again(table);
    return tap_done();
}
