"""transformers' side of cards.sh: what every model card tells a user to type."""
import json
import sys

import torch
import transformers

TALK = [{"role": "user", "content": "What is the capital of France?"}]
PROMPTS = ["The king said", "And then, when all of them had gone home, he"]
ENDS = ["<|endoftext|>", "<|im_end|>", "<|eom|>"]
CHATML = ("{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}"
          "<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def make(text, folder):
    """A small chat model with three ends, padding of its own, and a way of drawing."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.train([text], trainers.BpeTrainer(
        vocab_size=400, special_tokens=ENDS + ["<|im_start|>", "<|pad|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=bpe, bos_token="<|endoftext|>",
        eos_token="<|im_end|>", pad_token="<|pad|>",
        model_input_names=["input_ids", "attention_mask"], padding_side="left")
    tokenizer.chat_template = CHATML
    tokenizer.save_pretrained(folder)
    torch.manual_seed(5)
    ends = [tokenizer.convert_tokens_to_ids(end) for end in ENDS]
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=96,
        num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=128,
        bos_token_id=ends[0], eos_token_id=ends, pad_token_id=tokenizer.pad_token_id))
    model.generation_config = transformers.GenerationConfig(
        bos_token_id=ends[0], eos_token_id=ends,
        pad_token_id=tokenizer.pad_token_id, do_sample=True,
        temperature=0.2, top_p=0.9, top_k=20, repetition_penalty=1.1)
    model.save_pretrained(folder)


def load(folder):
    """A folder, or FOLDER/NAME.gguf."""
    more = {}
    if folder.endswith(".gguf"):
        folder, more["gguf_file"] = folder.rsplit("/", 1)
    return (transformers.AutoTokenizer.from_pretrained(folder, **more),
            transformers.AutoModelForCausalLM.from_pretrained(
                folder, dtype=torch.float32, **more).eval())


def answers(tokenizer, model):
    """The snippets; every result as a list of tokens."""
    greedy = dict(max_new_tokens=16, do_sample=False, temperature=None,
                  top_p=None, top_k=None)
    talk = tokenizer.apply_chat_template(
        TALK, add_generation_prompt=True, return_dict=True, return_tensors="pt")
    assert sorted(talk) == ["attention_mask", "input_ids"], sorted(talk)
    batch = tokenizer(PROMPTS, padding=True, return_tensors="pt")
    assert sorted(batch) == ["attention_mask", "input_ids"], sorted(batch)
    assert batch["attention_mask"][0, 0] == 0, "filled up on the right"
    together = model.generate(**batch, **greedy)[:, batch["input_ids"].shape[1]:]
    alone = tokenizer(PROMPTS[0], return_tensors="pt")
    one = model.generate(**alone, **greedy)[0, alone["input_ids"].shape[1]:]
    assert torch.equal(together[0, :len(one)], one), "a batch is not its prompts"
    torch.manual_seed(3)
    drawn = model.generate(**talk, max_new_tokens=16)
    pipe = transformers.pipeline("text-generation", model=model,
                                 tokenizer=tokenizer)
    said = pipe(TALK, max_new_tokens=8, do_sample=False)
    assert said[0]["generated_text"][-1]["role"] == "assistant", said
    return [model.generate(**talk, **greedy).tolist(), together.tolist(),
            drawn.tolist()]


def settings(model):
    config = model.generation_config
    ends = config.eos_token_id
    return dict(ends=sorted(ends) if isinstance(ends, list) else [ends],
                pad=config.pad_token_id, drawn=config.do_sample,
                temperature=config.temperature, top_p=config.top_p,
                top_k=config.top_k, penalty=config.repetition_penalty)


def same(ours, theirs):
    """Both folders answer alike, and would alike."""
    mine, other = load(ours), load(theirs)
    assert settings(mine[1]) == settings(other[1]), (settings(mine[1]),
                                                     settings(other[1]))
    assert mine[0].pad_token == other[0].pad_token
    assert answers(*mine) == answers(*other)
    print(json.dumps(settings(mine[1])))


def usable(ours):
    """The snippets alone, and what fills up texts."""
    tokenizer, model = load(ours)
    answers(tokenizer, model)
    print(tokenizer.pad_token)


def gguf(path, folder):
    """The keys of a file say what the folder's generation_config.json does."""
    import gguf as package
    fields = package.GGUFReader(path).fields
    def value(key):
        return fields[key].contents() if key in fields else None
    keys = package.Keys.Tokenizer
    config = transformers.GenerationConfig.from_pretrained(folder)
    assert sorted(value(k) for k in (keys.EOS_ID, keys.EOT_ID, keys.EOM_ID)) \
        == sorted(config.eos_token_id)
    assert value(keys.PAD_ID) == config.pad_token_id
    drawn = package.Keys.General
    for key, want in ((drawn.SAMPLING_TEMP, config.temperature),
                      (drawn.SAMPLING_TOP_P, config.top_p),
                      (drawn.SAMPLING_TOP_K, config.top_k),
                      (drawn.SAMPLING_PENALTY_REPEAT, config.repetition_penalty)):
        assert abs(value(key) - want) < 1e-6, (key, value(key), want)
    # transformers reads no general.sampling.*, one end and no padding
    tokenizer, model = load(path)
    tokenizer.pad_token = tokenizer.convert_ids_to_tokens(config.pad_token_id)
    model.generation_config = config
    # and begins plain texts with bos for all Llamas
    assert answers(tokenizer, model)[::2] == answers(*load(folder))[::2]


def adapter(base, folder, merged):
    """peft's model of base and adapter answers as the merged export."""
    import peft
    tokenizer, model = load(base)
    model = peft.PeftModel.from_pretrained(model, folder).merge_and_unload()
    assert answers(tokenizer, model) == answers(*load(merged))


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    globals()[sys.argv[1]](*sys.argv[2:])
