/* Chat templates: whatever a file holds, it is refused or makes a text, within
 * the limits of work and memory. */

#include "src/text/chat/chat_parse.h"
#include "src/text/chat/chat_impl.h"
#include "tests/fuzz/fuzz.h"

/* What is left of a conversation's work, so that a run takes milliseconds. */
#define WORK ((int64_t)1 << 22)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const struct chat_message messages[] = {
        { "system", " a\xc2\xa0", 4 },
        { "user", "b c <|im_end|>\n", 15 },
        { "assistant", "", 0 },
        { "tool", "\xe2\x80\x83x", 4 },
    };
    static char name[] = "fuzz";
    struct chat_template template = { .name = name,
                                      .bos = chat_value_string("<s>", 3) };
    struct chat_text text = { 0 };
    struct chat_turn turns[4];
    size_t turns_count = 0;
    if (chat_parse_read((const char *)data, bytes, &template.tree) != ERR_OK)
        return 0;
    for (size_t count = 0; count <= 4; count += 2) {
        struct chat_memory memory = { .work = CHAT_VALUE_WORK_MAX - WORK };
        if (chat_render_turns(&template, messages, count, count == 2, &memory,
                              &text, turns, &turns_count) == ERR_OK)
            assert(text.text != NULL && text.text[text.bytes] == '\0' &&
                   text.bytes <= (size_t)WORK);
        assert(memory.last == NULL && memory.bytes == 0);
    }
    free(text.text);
    chat_parse_release(&template.tree);
    return 0;
}
