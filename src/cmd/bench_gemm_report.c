/* Shows what tessera-bench gemm has found as text or JSON. Nothing is measured
 * here: see bench_gemm.c. */
#include <stdio.h>

#include "src/base/median.h"
#include "src/cmd/bench_gemm.h"

/* The ratios of all shapes. */
struct ratios {
    double values[BENCH_GEMM_SHAPES];
    int count;
};

static void set_ratios(json_t *result, const char *name, struct ratios *ratios)
{
    char key[64];
    if (ratios->count == 0)
        return;
    double median = median_of(ratios->values, ratios->count); /* sorts */
    snprintf(key, sizeof key, "%s_min", name);
    json_object_set_new(result, key, json_real(ratios->values[0]));
    snprintf(key, sizeof key, "%s_median", name);
    json_object_set_new(result, key, json_real(median));
}

static json_t *report_shape(const struct bench_peers *peers,
                            struct bench_gemm_shape *shape,
                            struct ratios *of_peak, struct ratios *of_peer)
{
    const struct bench_product *p = &shape->product;
    double ours = median_of(shape->ours, shape->count);
    double peak = median_of(shape->peak, shape->count);
    double best = 0.0;
    json_t *rates = json_object();
    for (int kind = 0; kind < BLAS_KINDS; kind++) {
        if (peers->best[kind] == NULL)
            continue;
        double rate = median_of(shape->peers[kind], shape->count);
        best = rate > best ? rate : best;
        json_object_set_new(rates, bench_blas_name((enum bench_blas_kind)kind),
                            json_real(rate * 1e-9));
    }
    json_t *out =
        json_pack("{s:s, s:s, s:i, s:I, s:I, s:I, s:f, s:f, s:f, s:o}", "what",
                  shape->what, "form", bench_product_form(p), "groups",
                  p->groups, "m", (json_int_t)p->m, "n", (json_int_t)p->n, "k",
                  (json_int_t)p->k, "ours_gflops", ours * 1e-9, "peak_gflops",
                  peak * 1e-9, "peak_fraction", ours / peak, "peers", rates);
    of_peak->values[of_peak->count++] = ours / peak;
    if (best > 0.0) {
        json_object_set_new(out, "best_peer_fraction", json_real(ours / best));
        of_peer->values[of_peer->count++] = ours / best;
    }
    return out;
}

json_t *bench_gemm_report(const struct bench_gemm_ours *ours,
                          const struct bench_peers *peers,
                          struct bench_gemm_shape *shapes, int count)
{
    struct ratios of_peak = { .count = 0 }, of_peer = { .count = 0 };
    char about[160];
    json_t *list = json_array();
    ours->kernels->describe(about, sizeof about);
    for (int i = 0; i < count; i++)
        json_array_append_new(
            list, report_shape(peers, &shapes[i], &of_peak, &of_peer));
    json_t *result =
        json_pack("{s:s, s:s, s:s, s:i, s:i, s:o, s:o}", "bench", "gemm",
                  "kernel_set", ours->kernels->kernel_set, "arithmetic", about,
                  "threads", ours->ctx.threads, "rounds", shapes[0].count,
                  "libraries", bench_peers_report(peers), "shapes", list);
    set_ratios(result, "peak_fraction", &of_peak);
    set_ratios(result, "best_peer_fraction", &of_peer);
    return result;
}

static double real_of(const json_t *object, const char *key)
{
    return json_real_value(json_object_get(object, key));
}

static long long integer_of(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static void print_shape(const json_t *shape)
{
    const json_t *peers = json_object_get(shape, "peers");
    const json_t *best = json_object_get(shape, "best_peer_fraction");
    printf("%-16s %s %2lld %5lld %5lld %5lld %7.1f %7.1f %6.3f",
           text_of(shape, "what"), text_of(shape, "form"),
           integer_of(shape, "groups"), integer_of(shape, "m"),
           integer_of(shape, "n"), integer_of(shape, "k"),
           real_of(shape, "ours_gflops"), real_of(shape, "peak_gflops"),
           real_of(shape, "peak_fraction"));
    for (int kind = 0; kind < BLAS_KINDS; kind++) {
        const json_t *rate =
            json_object_get(peers, bench_blas_name((enum bench_blas_kind)kind));
        if (rate != NULL)
            printf(" %8.1f", json_real_value(rate));
        else
            printf(" %8s", "-");
    }
    if (best != NULL)
        printf(" %6.3f\n", json_real_value(best));
    else
        printf(" %6s\n", "-");
}

static void print_summary(const json_t *result, const char *name)
{
    char key[64];
    snprintf(key, sizeof key, "%s_min", name);
    const json_t *least = json_object_get(result, key);
    snprintf(key, sizeof key, "%s_median", name);
    if (least != NULL)
        printf("%-24s min %.3f, median %.3f\n", name, json_real_value(least),
               real_of(result, key));
    else
        printf("%-24s no other BLAS could be opened\n", name);
}

void bench_gemm_print(const json_t *result)
{
    size_t i;
    const json_t *item;
    printf("kernel set %s, %s, %lld threads, GFLOP/s\n",
           text_of(result, "kernel_set"), text_of(result, "arithmetic"),
           integer_of(result, "threads"));
    printf("%-16s %s %2s %5s %5s %5s %7s %7s %6s", "", "  ", "g", "m", "n", "k",
           "ours", "peak", "/peak");
    for (int kind = 0; kind < BLAS_KINDS; kind++)
        printf(" %8s", bench_blas_name((enum bench_blas_kind)kind));
    printf(" %6s\n", "/best");
    json_array_foreach(json_object_get(result, "shapes"), i, item)
    {
        print_shape(item);
    }
    json_array_foreach(json_object_get(result, "attention"), i, item)
    {
        printf("attention %-14s %lld tokens: %.1f of %.1f GFLOP/s, %.3f\n",
               text_of(item, "what"), integer_of(item, "tokens"),
               real_of(item, "gflops"), real_of(item, "peak_gflops"),
               real_of(item, "peak_fraction"));
    }
    print_summary(result, "peak_fraction");
    print_summary(result, "best_peer_fraction");
}
