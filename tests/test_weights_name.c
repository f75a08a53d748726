/* Names of models for others to read: no path of this machine, nothing that
 * breaks a table. */
#include "src/formats/weights.h"

#include "tests/tap.h"

static const struct {
    const char *path, *name;
} cases[] = {
    { "/data/models/SmolLM2-135M", "SmolLM2-135M" },
    { "/data/models/SmolLM2-135M///", "SmolLM2-135M" },
    { "SmolLM2-135M", "SmolLM2-135M" },
    { "/data/model.Q8_0.gguf", "model.Q8_0.gguf" },
    { "/home/u/.cache/huggingface/hub/models--HuggingFaceTB--SmolLM2-135M/"
      "snapshots/0123abcd",
      "HuggingFaceTB/SmolLM2-135M" },
    { "/hub/models--gpt2/snapshots/0/", "gpt2" },
    { "models--a--b", "a/b" },
    { "/hub/my-models--a--b/c", "c" },
    { "/hub/my-models--a/models--b--c--d/x", "b/c--d" },
    { "/runs/first/checkpoints/step-000000006", "first" },
    { "/runs/first/checkpoints/step-000000006/", "first" },
    { "/runs/first//checkpoints//step-000000006", "first" },
    { "/kept/step-000000000", "kept" },
    { "step-000000000", "step-000000000" },
    { "checkpoints", "checkpoints" },
    { "/", "" },
    { "", "" },
    { "/a/b|c`d\n\"e\": [f]", "b_c_d__e__ _f_" },
    { "/a/mod\xc3\xa8le 2", "mod\xc3\xa8le 2" },
};

int main(void)
{
    char path[8192], name[WEIGHTS_NAME_MAX];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        weights_name(cases[i].path, name);
        tap_is_str(name, cases[i].name, "%s", cases[i].path);
    }
    memset(path, 'x', sizeof path);
    path[sizeof path - 1] = '\0';
    weights_name(path, name);
    tap_is_int((long long)strlen(name), WEIGHTS_NAME_MAX - 1, "a long one");
    memcpy(path, "models--", 8);
    weights_name(path, name);
    tap_is_int((long long)strlen(name), WEIGHTS_NAME_MAX - 1, "of the hub");
    return tap_done();
}
