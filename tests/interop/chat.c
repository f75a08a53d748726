/* Chat templates for a Python peer: "chat TOKENIZER TEMPLATE" reads a list of
 * {"messages": [{"role", "content"}..], "prompt": true|false} from standard input
 * and writes a list of {"text"} or {"error"}. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "src/text/chat/chat.h"

static json_t *answer(const char *key, const char *text, size_t bytes)
{
    return json_pack("{s:o}", key, json_stringn_nocheck(text, bytes));
}

static json_t *render(const struct chat_template *template, const json_t *talk)
{
    const json_t *list = json_object_get(talk, "messages");
    struct chat_message messages[32];
    struct chat_text text = { 0 };
    size_t count = json_array_size(list);
    if (count > 32)
        abort();
    for (size_t m = 0; m < count; m++) {
        const json_t *message = json_array_get(list, m);
        const json_t *content = json_object_get(message, "content");
        messages[m] = (struct chat_message){
            json_string_value(json_object_get(message, "role")),
            json_string_value(content), json_string_length(content)
        };
    }
    bool prompt = json_is_true(json_object_get(talk, "prompt"));
    json_t *out =
        chat_render(template, messages, count, prompt, &text) == ERR_OK
            ? answer("text", text.text, text.bytes)
            : answer("error", err_text(), strlen(err_text()));
    free(text.text);
    return out;
}

int main(int argc, char **argv)
{
    struct tokenizer *tokenizer = NULL;
    struct chat_template *template = NULL;
    json_t *talks = json_loadf(stdin, 0, NULL), *all = json_array();
    if (argc != 3 || tokenizer_create(argv[1], &tokenizer) != ERR_OK)
        return 1;
    enum err rc = chat_template_create(argv[2], tokenizer, &template);
    for (size_t t = 0; t < json_array_size(talks); t++)
        json_array_append_new(
            all, rc == ERR_OK
                     ? render(template, json_array_get(talks, t))
                     : answer("error", err_text(), strlen(err_text())));
    json_dumpf(all, stdout, 0);
    json_decref(all);
    json_decref(talks);
    chat_template_destroy(template);
    tokenizer_destroy(tokenizer);
    return 0;
}
