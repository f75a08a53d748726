"""In-context tasks beside LLM Foundry's own classes, which are read from its
repository's files: eval.py FOUNDRY MODEL TESSERA_EVAL. Prints TAP.

Its files import packages of which they need little here: small stand-ins take
their places. Prompts are compared token by token for all its task files, scores
example by example with transformers' model in fp32 for a sample of tasks.

TESSERA_EVAL_PROMPTS and TESSERA_EVAL_SCORES: examples of each task (100, 20).
TESSERA_EVAL_TASKS: names of the tasks to score."""
import importlib.util
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import types

import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

CLOSE = 1e-5  # scores of which either may be the lesser


# --- stand-ins ----------------------------------------------------------------
class Table(list):
    """What LLM Foundry uses of datasets.Dataset, over a list of records."""

    @property
    def features(self):
        return {key for record in self[:1] for key in record}

    def map(self, function, with_indices=False, fn_kwargs=None):
        out = Table()
        for index, record in enumerate(self):
            where = (index,) if with_indices else ()
            out.append({**record, **function(record, *where, **(fn_kwargs or {}))})
        return out


def load_dataset(_, data_files, **__):
    with open(data_files, encoding='utf8') as lines:
        return Table(json.loads(line) for line in lines if line.strip())


class Metric(torch.nn.Module):
    """What it uses of torchmetrics.Metric: counts that are added to."""

    def __init__(self, **_):
        super().__init__()

    def add_state(self, name, default, **_):
        setattr(self, name, default.clone())


class Anything(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith('__'):
            raise AttributeError(name)
        return None


def stand_in(name, **members):
    module = Anything(name)
    module.__path__ = []
    vars(module).update(members)
    sys.modules[name] = module


class Here:
    """composer.utils.dist of one process."""

    @staticmethod
    def get_local_rank():
        return 0

    @staticmethod
    def local_rank_zero_download_and_wait(_):
        import contextlib
        return contextlib.nullcontext()


def no_copy(*_, **__):
    """composer.utils.get_file: the file is where it has to be."""


def load(foundry, name):
    """One of LLM Foundry's files as a module of its name."""
    path = os.path.join(foundry, *name.split('.')) + '.py'
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def load_foundry(foundry):
    for name in ('composer', 'composer.core', 'composer.core.data_spec',
                 'llmfoundry', 'llmfoundry.registry', 'llmfoundry.utils',
                 'llmfoundry.utils.registry_utils', 'llmfoundry.eval',
                 'llmfoundry.eval.datasets', 'llmfoundry.eval.metrics'):
        stand_in(name)
    stand_in('composer.utils', dist=Here, get_file=no_copy)
    stand_in('datasets', Dataset=Table, IterableDataset=Table,
             load_dataset=load_dataset)
    stand_in('torchmetrics', Metric=Metric)
    load(foundry, 'llmfoundry.eval.datasets.utils')
    return (load(foundry,
                 'llmfoundry.eval.datasets.in_context_learning_evaluation'),
            load(foundry, 'llmfoundry.eval.metrics.nlp'))


# --- tasks --------------------------------------------------------------------
KINDS = {
    'language_modeling': ('InContextLearningLMTaskDataset',
                          'InContextLearningLMAccuracy'),
    'multiple_choice': ('InContextLearningMultipleChoiceTaskDataset',
                        'InContextLearningMultipleChoiceAccuracy'),
    'schema': ('InContextLearningSchemaTaskDataset',
               'InContextLearningMultipleChoiceAccuracy'),
    'generation_task_with_answers':
        ('InContextLearningGenerationTaskWithAnswersDataset',
         'InContextLearningGenerationExactMatchAccuracy'),
}


def kind_of(record):
    for kind, field in (('multiple_choice', 'query'),
                        ('schema', 'context_options'),
                        ('language_modeling', 'continuation'),
                        ('generation_task_with_answers', 'answer')):
        if field in record:
            return kind
    return None


def read_tasks(foundry):
    """Those of version 0.3 whose files are there, then all other files with
    defaults and two shots."""
    data = os.path.join(foundry, 'scripts/eval/local_data')
    listed = os.path.join(foundry, 'scripts/eval/yamls/tasks_v0.3.yaml')
    with open(listed, encoding='utf8') as file:
        tasks = yaml.safe_load(file)['icl_tasks']
    out, seen = [], set()
    for task in tasks:
        path = os.path.join(data, task['dataset_uri'].split('local_data/')[1])
        seen.add(path)
        if os.path.exists(path):
            out += [{**task, 'file': path, 'shots': shots}
                    for shots in task['num_fewshot']]
    for folder, _, names in sorted(os.walk(data)):
        for name in sorted(names):
            path = os.path.join(folder, name)
            if path in seen or not name.endswith('.jsonl'):
                continue
            with open(path, encoding='utf8') as file:
                line = file.readline()
            kind = kind_of(json.loads(line)) if line.startswith('{') else None
            if kind and 'test' not in json.loads(line):
                out.append({'label': name[:-6], 'icl_task_type': kind,
                            'file': path, 'shots': 2})
    return out


def foundry_options(task):
    options = {key: task[key]
               for key in ('continuation_delimiter', 'cot_delimiter',
                           'do_normalization', 'early_stopping_criteria')
               if key in task}
    if 'question_prelimiter' in task:
        options['prelimiter'] = task['question_prelimiter']
    return options


def our_options(task):
    options = []
    for key, name in (('continuation_delimiter', '--continuation-delimiter'),
                      ('cot_delimiter', '--cot-delimiter'),
                      ('question_prelimiter', '--prelimiter')):
        if key in task:
            options += [name, task[key]]
    for stop in task.get('early_stopping_criteria', []):
        options += ['--stop', stop]
    if not task.get('do_normalization', True):
        options += ['--no-normalization']
    if task.get('has_categories'):
        options += ['--categories']
    return options


def parts_of(task, folder):
    """(category, file): as partition_dataset_by_category() divides it."""
    if not task.get('has_categories'):
        return [(None, task['file'])]
    records = load_dataset('json', task['file'])
    out = []
    for category in sorted({record['category'] for record in records}):
        path = os.path.join(folder, 'part%d.jsonl' % len(out))
        with open(path, 'w', encoding='utf8') as file:
            for record in records:
                if record['category'] == category:
                    file.write(json.dumps(record, ensure_ascii=False) + '\n')
        out.append((category, path))
    return out


class World:
    def __init__(self, foundry, model, tessera, folder):
        self.datasets, self.metrics = load_foundry(foundry)
        self.tokenizer = AutoTokenizer.from_pretrained(model)
        self.path, self.tessera, self.folder = model, tessera, folder
        self.model = None
        # one that no prompt has, so that nothing of it is masked
        self.pad = self.tokenizer.convert_tokens_to_ids('<|endoftext|>')
        self.max_seq_len = 4096

    def dataset(self, task, path):
        data = getattr(self.datasets, KINDS[task['icl_task_type']][0])
        return data(dataset_uri=path, tokenizer=self.tokenizer,
                    max_seq_len=self.max_seq_len, pad_tok_id=self.pad,
                    num_fewshot=task['shots'], destination_path=path,
                    **foundry_options(task))

    def ours(self, task, limit, *more):
        """Our lines, by category."""
        lines = os.path.join(self.folder, 'lines')
        command = [self.tessera, self.path, '--task',
                   '%s:%s:%d' % (task['icl_task_type'], task['file'],
                                 task['shots']),
                   '--max-seq-len', str(self.max_seq_len), '--examples', lines,
                   '--limit', str(limit), *our_options(task), *more]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.PIPE)
        out = {}
        with open(lines, encoding='utf8') as file:
            for line in file:
                line = json.loads(line)
                out.setdefault(line['category'], []).append(line)
        return out

    def theirs(self, task, path, limit):
        """Examples as LLM Foundry prepares them, in order."""
        data = self.dataset(task, path)
        rng = random.Random(1234)
        for index in range(min(limit, len(data.dataset))):
            example = data._prep_example(data.dataset[index], index,
                                         task['shots'], '', rng)
            yield data, {**data.dataset[index], **example}

    # --- prompts ---
    def rows(self, data, example):
        """(tokens, tokens of the continuation) of each row, without padding."""
        inputs = example[data.context_key]
        spans = example.get('continuation_indices')
        if spans is None:
            tokens = inputs.tolist()
            while tokens[:1] == [self.pad]:
                tokens = tokens[1:]
            return [(tokens, 0)]
        if not isinstance(spans, list):
            inputs, spans = [inputs], [spans]
        return [(row.tolist()[:int(span[-1]) + 1], len(span))
                for row, span in zip(inputs, spans)]

    def same_prompts(self, task, limit):
        lines = self.ours(task, limit, '--dry-run')
        count = cut = 0
        for category, path in parts_of(task, self.folder):
            got = iter(lines.pop(category))
            for index, (data, example) in enumerate(
                    self.theirs(task, path, limit)):
                line = next(got, None)
                assert line is not None, 'too few examples'
                want = self.rows(data, example)
                have = [(row['tokens'], row['span']) for row in line['rows']]
                if have != want:
                    for (h, _), (w, _) in zip(have, want):
                        print('# ours   ', self.tokenizer.decode(h)[-300:])
                        print('# theirs ', self.tokenizer.decode(w)[-300:])
                    raise AssertionError('example %d differs' % index)
                count += len(want)
                cut += line['cut']
            assert next(got, None) is None, 'too many examples'
        assert not lines, 'categories of our own'
        return '%d rows, %d examples cut' % (count, cut)

    def same_short_prompts(self, task, limit):
        """Where most examples lose tokens at the left."""
        whole = self.max_seq_len
        self.max_seq_len = 128
        try:
            return self.same_prompts(task, limit)
        finally:
            self.max_seq_len = whole

    # --- scores ---
    def forward(self, tokens, mask):
        if self.model is None:
            self.model = AutoModelForCausalLM.from_pretrained(
                self.path, dtype=torch.float32)
            self.model.generation_config.pad_token_id = self.pad
        with torch.no_grad():
            return self.model(input_ids=tokens, attention_mask=mask).logits

    def judge(self, data, example, metric):
        """Of one example (right, scores)."""
        batch = data.collate_fn([example])
        if batch['mode'] == 'generate':
            first = int((batch['input_ids'][0] != self.pad).nonzero()[0])
            tokens = batch['input_ids'][:, first:]
            self.forward(tokens[:, :1], None)
            made = self.model.generate(
                tokens, attention_mask=tokens != self.pad, do_sample=False,
                **batch['generation_kwargs'])
            text = self.tokenizer.batch_decode(made[:, tokens.shape[1]:],
                                               skip_special_tokens=True)
            result = metric.update(batch, text, batch['labels'])
            return result['result'][0], result['cleaned_output'][0]
        longest = max(int(span[-1]) + 1 for span in batch['continuation_indices'])
        for key in ('input_ids', 'labels', 'attention_mask'):
            batch[key] = batch[key][:, :longest]
        logits = self.forward(batch['input_ids'], batch['attention_mask'])
        # as HuggingFaceModel.eval_forward() has them
        labels = torch.roll(batch['labels'], shifts=-1)
        labels[:, -1] = -100
        scores = []
        for row, span in enumerate(batch['continuation_indices']):
            at = logits[row].index_select(0, span - 1)
            to = labels[row].index_select(0, span - 1)
            top = at.topk(2).values
            scores.append((
                float(torch.exp(torch.nn.functional.cross_entropy(at, to))),
                float((top[:, 0] - top[:, 1]).min())))
        return metric.update(batch, logits, labels)['result'][0], scores

    def same_scores(self, task, limit):
        lines = self.ours(task, limit, '--threads', '1', '--batch', '4')
        kind = task['icl_task_type']
        metric = getattr(self.metrics, KINDS[kind][1])()
        differ, right, count, far = [], 0, 0, 0.0
        for category, path in parts_of(task, self.folder):
            for line, (data, example) in zip(lines[category],
                                             self.theirs(task, path, limit)):
                verdict, scores = self.judge(data, example, metric)
                count += 1
                right += verdict
                if kind.startswith('generation'):
                    if line['compared'] != scores or line['right'] != verdict:
                        differ.append((line['example'], line['compared'],
                                       scores))
                    continue
                ours = line['scores']
                for mine, (theirs, _) in zip(ours, scores):
                    far = max(far, abs(math.log(mine) - math.log(theirs)))
                if line['right'] != bool(verdict):
                    two = sorted(score for score, _ in scores)[:2]
                    near = (abs(two[0] / two[-1] - 1) < CLOSE
                            if len(two) > 1 else scores[0][1] < CLOSE)
                    differ.append((line['example'], ours, scores,
                                   'near' if near else 'FAR'))
        for difference in differ:
            print('#', *difference)
        assert far < 1e-3, 'cross entropies differ by %g' % far
        allowed = 0 if kind.startswith('generation') else count / 1000
        assert len(differ) <= allowed, '%d of %d differ' % (len(differ), count)
        return ('%d examples, %d right, cross entropies within %.1e'
                % (count, right, far))


def main():
    foundry, model, tessera = sys.argv[1:]
    torch.set_num_threads(1)
    prompts = int(os.environ.get('TESSERA_EVAL_PROMPTS', 100))
    scores = int(os.environ.get('TESSERA_EVAL_SCORES', 20))
    chosen = os.environ.get(
        'TESSERA_EVAL_TASKS',
        'piqa copa winograd arc_easy lambada_openai boolq jeopardy svamp '
        'triviaqa_sm_sub').split()
    point = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        world = World(foundry, model, tessera, folder)
        todo = []
        for task in read_tasks(foundry):
            if prompts:
                todo.append(('prompts', task, world.same_prompts, prompts))
            if prompts and task['label'] in ('arc_easy', 'winogrande',
                                             'triviaqa_sm_sub'):
                todo.append(('short prompts', task, world.same_short_prompts,
                             prompts))
        for task in read_tasks(foundry):
            if scores and task['label'] in chosen:
                todo.append(('scores', task, world.same_scores, scores))
        for what, task, compare, limit in todo:
            point += 1
            name = '%s of %s, %d-shot' % (what, task['label'], task['shots'])
            try:
                print('ok %d - %s: %s' % (point, name, compare(task, limit)),
                      flush=True)
            except subprocess.CalledProcessError as error:
                failed += 1
                print('# %s' % error.stderr.decode().strip())
                print('not ok %d - %s' % (point, name), flush=True)
            except AssertionError as error:
                failed += 1
                print('not ok %d - %s: %s' % (point, name, error), flush=True)
    print('1..%d' % point)
    sys.exit(failed > 0)


main()
