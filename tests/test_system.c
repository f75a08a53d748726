/* What is read of a node under a made-up root and of a made-up GPU, and figures
 * of several ranks' parts: each node and each GPU counts once. */
#include <libgen.h>
#include <limits.h>

#include "src/base/fsio.h"
#include "src/base/log.h"
#include "src/train/listeners/on_system.h"
#include "tests/tap.h"

static char nvml[PATH_MAX + 64], nvml_old[PATH_MAX + 64];

static char root[FSIO_PATH_MAX];

static void put(const char *name, const char *text)
{
    char path[FSIO_PATH_MAX];
    snprintf(path, sizeof path, "%s%s", root, name);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    bool made = fsio_mkdirs(path) == ERR_OK;
    *slash = '/';
    if (!made || fsio_write_atomic(path, text, strlen(text)) != ERR_OK)
        tap_ok(false, "%s", err_text());
}

#define CAP "/sys/class/powercap/"

static void put_zone(const char *zone, const char *name, const char *range,
                     const char *energy)
{
    char file[256];
    snprintf(file, sizeof file, CAP "%s/name", zone);
    put(file, name);
    snprintf(file, sizeof file, CAP "%s/max_energy_range_uj", zone);
    put(file, range);
    snprintf(file, sizeof file, CAP "%s/energy_uj", zone);
    put(file, energy);
}

static void set_energy(const char *zone, const char *energy)
{
    char file[256];
    snprintf(file, sizeof file, CAP "%s/energy_uj", zone);
    put(file, energy);
}

static void make_node(void)
{
    put("/proc/stat", "cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 1 2 3\n");
    put("/proc/loadavg", "3.25 1 1 1/2 3\n");
    put("/proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 600 kB\n");
    put("/proc/net/dev", "Inter-| Receive\n face |bytes\n"
                         "    lo: 9 0 0 0 0 0 0 0 9 0 0 0 0 0 0 0\n"
                         "  eth0:1000 0 0 0 0 0 0 0 2000 0 0 0 0 0 0 0\n"
                         "   ib0: 10 0 0 0 0 0 0 0 20 0 0 0 0 0 0 0\n");
    put_zone("intel-rapl:0", "package-0\n", "262143328850\n", "1000000\n");
    put_zone("intel-rapl:0:0", "core\n", "262143328850\n", "500000\n");
    put_zone("intel-rapl:0:1", "dram\n", "65712999613\n", "65712999613\n");
    put_zone("intel-rapl:1", "package-1\n", "262143328850\n", "7\n");
    put_zone("intel-rapl:2", "psys\n", "262143328850\n", "9\n");
}

static void test_usage(void)
{
    struct node_usage usage;
    node_usage_read(root, &usage);
    tap_ok(usage.all_s > 0.0 && fabs(usage.busy_s / usage.all_s - 0.2) < 1e-12,
           "a fifth of the processors was busy");
    tap_ok(usage.load == 3.25 && usage.received == 1010.0 &&
               usage.sent == 2020.0 && usage.available == 600.0 * 1024.0,
           "load, network but for the loopback, memory");
    tap_ok(usage.process_s > 0.0, "the process has used some time");
    node_usage_read("/nowhere", &usage);
    tap_ok(isnan(usage.all_s) && isnan(usage.load) && isnan(usage.received),
           "what is not there is not known");
    node_usage_read("", &usage);
    tap_ok(usage.all_s > usage.busy_s && usage.load >= 0.0 &&
               usage.available > 0.0,
           "this machine");
}

static void test_energy(void)
{
    struct node_energy *energy = NULL;
    double joules = -1.0;
    enum err rc = node_energy_create(root, &energy);
    tap_ok(rc == ERR_OK, "counters of energy: %s", err_text());
    set_energy("intel-rapl:0", "3500000\n");
    set_energy("intel-rapl:0:0", "9999999\n");
    set_energy("intel-rapl:0:1", "500000\n"); /* begun again */
    set_energy("intel-rapl:1", "1000007\n");
    set_energy("intel-rapl:2", "99999999\n");
    rc = node_energy_read(energy, &joules);
    tap_ok(rc == ERR_OK && fabs(joules - (2.5 + 0.5 + 1.0)) < 1e-9,
           "packages and memory, not their parts nor the whole: %g J", joules);
    rc = node_energy_read(energy, &joules);
    tap_ok(rc == ERR_OK && joules == 0.0, "and nothing since");
    set_energy("intel-rapl:1", "\n");
    rc = node_energy_read(energy, &joules);
    tap_ok(rc == ERR_IO && strstr(err_text(), "intel-rapl:1") != NULL,
           "a counter that has gone is named: %s", err_text());
    node_energy_destroy(energy);
    rc = node_energy_create(root, &energy);
    tap_ok(rc == ERR_UNSUPPORTED, "and never left out: %s", err_text());
    rc = node_energy_create("/nowhere", &energy);
    tap_ok(rc == ERR_UNSUPPORTED && strstr(err_text(), "/nowhere/sys") != NULL,
           "no counters: %s", err_text());
    set_energy("intel-rapl:1", "1000007\n");
}

static void test_gpu(void)
{
    struct gpu_usage usage;
    struct gpu_reading reading;
    setenv("NVML_FAKE", "gpu=80,celsius=71,milliwatts=300000,joules=12", 1);
    enum err rc = gpu_usage_open(nvml, "0000:10:00.0", &usage);
    if (rc == ERR_OK)
        rc = gpu_usage_read(&usage, &reading);
    tap_ok(rc == ERR_OK && reading.utilization == 0.8 &&
               reading.celsius == 71.0 && reading.watts == 300.0 &&
               reading.memory == 500.0 * 1048576.0 && reading.mhz == 1980.0 &&
               fabs(reading.joules - 12.0) < 1e-9 && reading.throttled == 0.0 &&
               reading.capped == 1.0,
           "the GPU's figures: %s", rc == ERR_OK ? "" : err_text());
    setenv("NVML_FAKE", "throttle=0x48,lost=0", 1);
    rc = gpu_usage_read(&usage, &reading);
    tap_ok(rc == ERR_OK && reading.throttled == 1.0 && reading.capped == 0.0,
           "slowed down by heat");
    setenv("NVML_FAKE", "lost=1", 1);
    rc = gpu_usage_read(&usage, &reading);
    tap_ok(rc == ERR_IO, "lost: %s", err_text());
    gpu_usage_close(&usage);
    unsetenv("NVML_FAKE");
    rc = gpu_usage_open(nvml_old, "0000:10:00.0", &usage);
    if (rc == ERR_OK)
        rc = gpu_usage_read(&usage, &reading);
    tap_ok(rc == ERR_OK && isnan(reading.watts) && isnan(reading.joules) &&
               isnan(reading.throttled),
           "an old driver knows nothing of it");
    gpu_usage_close(&usage);
    rc = gpu_usage_open(nvml, "0000:99:00.0", &usage);
    tap_ok(rc != ERR_OK, "another GPU: %s", err_text());
    gpu_usage_close(&usage);
}

static double told(const struct tracking_list *list, const char *name)
{
    const struct tracking_record *record = tracking_list_record(list);
    for (int i = 0; i < record->count; i++)
        if (strcmp(record->scalars[i].name, name) == 0)
            return record->scalars[i].value;
    return NAN;
}

/* Two nodes of two ranks, of which those of the first share a GPU. */
static void test_parts(struct tracking_list *list)
{
    static const char *const hosts[] = { "a", "a", "b", "b" };
    static const char *const buses[] = { "1", "1", "1", "2" };
    struct system_part parts[4];
    for (int r = 0; r < 4; r++) {
        double of_node = r % 2 == 0 ? 1.0 : NAN;
        parts[r] = (struct system_part){
            .process_cpus = 2.0,
            .resident = 100.0 + r,
            .peak = 200.0 - r,
            .node_cpu = of_node * (r == 0 ? 0.25 : 0.75),
            .load = of_node * (4.0 + r),
            .available = of_node * (50.0 - r),
            .received = of_node * 10.0,
            .sent = of_node * 20.0,
            .node_j = of_node * 600.0,
            .gpu = { .utilization = 0.5 + 0.1 * r,
                     .memory = 7.0,
                     .celsius = 60.0 + r,
                     .watts = 100.0,
                     .mhz = 1000.0 - r,
                     .throttled = r == 1,
                     .capped = 1.0,
                     .joules = 1000.0 },
            .interval_s = 10.0,
        };
        snprintf(parts[r].bus, sizeof parts[r].bus, "%s", buses[r]);
    }
    system_parts_tell(parts, 4, hosts, list);
    tap_ok(told(list, "system/process_cpus") == 8.0 &&
               told(list, "system/resident") == 103.0 &&
               told(list, "system/resident_peak") == 200.0,
           "of all ranks");
    tap_ok(told(list, "system/node_cpu") == 0.5 &&
               told(list, "system/load") == 6.0 &&
               told(list, "system/memory_available") == 48.0 &&
               told(list, "system/network_received") == 20.0 &&
               told(list, "system/network_sent") == 40.0 &&
               told(list, "system/node_power") == 120.0,
           "of each node once");
    tap_ok(fabs(told(list, "gpu/utilization") - 2.0 / 3.0) < 1e-12 &&
               told(list, "gpu/temperature") == 63.0 &&
               told(list, "gpu/power") == 300.0 &&
               told(list, "gpu/clock") == 997.0 &&
               told(list, "gpu/throttled") == 0.0 &&
               told(list, "gpu/power_capped") == 3.0,
           "of each GPU once");
    tap_ok(told(list, "energy_j") == 2 * 600.0 + 3 * 1000.0,
           "energy of nodes and GPUs: %g J", told(list, "energy_j"));
    tracking_list_clear(list);
    for (int r = 0; r < 4; r++)
        parts[r].node_j = parts[r].gpu.joules = parts[r].gpu.watts = NAN;
    system_parts_tell(parts, 4, hosts, list);
    tap_ok(isnan(told(list, "energy_j")) && isnan(told(list, "gpu/power")) &&
               isnan(told(list, "system/node_power")) &&
               told(list, "system/load") == 6.0,
           "what nobody knows is left out");
}

static void test_reader(struct tracking_list *list)
{
    static const char *const hosts[] = { "a" };
    struct system_reader reader;
    struct system_part part;
    make_node();
    system_reader_open(root, true, NULL, false, &reader);
    put("/proc/stat", "cpu  200 0 200 900 100 0 0 0 0 0\n");
    set_energy("intel-rapl:1", "2000007\n");
    system_reader_read(&reader, &part);
    tap_ok(fabs(part.node_cpu - 0.5) < 1e-12 && part.load == 3.25 &&
               part.received == 0.0 && fabs(part.node_j - 2.0) < 1e-9 &&
               part.resident > 0.0 && part.peak >= part.resident,
           "a rank's part is what has passed since");
    system_reader_close(&reader);
    system_reader_open(root, false, NULL, false, &reader);
    system_reader_read(&reader, &part);
    tap_ok(isnan(part.node_cpu) && isnan(part.node_j) && isnan(part.load),
           "another rank of the node says nothing of it");
    system_reader_close(&reader);
    tracking_list_clear(list);
    system_parts_tell(&part, 1, hosts, list);
    tap_ok(isnan(told(list, "energy_j")), "nor of energy");
}

int main(void)
{
    struct tracking_list *list = NULL;
    char self[PATH_MAX] = "";
    if (readlink("/proc/self/exe", self, sizeof self - 1) <= 0)
        return 1;
    const char *folder = dirname(self);
    snprintf(nvml, sizeof nvml, "%s/../fake/libnvidia-ml.so.1", folder);
    snprintf(nvml_old, sizeof nvml_old, "%s/../fake/libnvidia-ml-old.so",
             folder);
    log_init("test", 0, LOG_ERROR);
    if (fsio_mkdir_new("/tmp/tessera-system", root) != ERR_OK ||
        tracking_list_create(&list) != ERR_OK) {
        fprintf(stderr, "%s\n", err_text());
        return 1;
    }
    make_node();
    test_usage();
    test_energy();
    test_gpu();
    test_parts(list);
    test_reader(list);
    tracking_list_destroy(list);
    fsio_remove_tree(root);
    return tap_done();
}
