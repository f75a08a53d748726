"""In-context tasks beside LLM Foundry's own classes: eval.py FOUNDRY MODEL
TESSERA_EVAL. Prints TAP. FOUNDRY is a folder of its repository, for the task files.

Prompts are compared token by token for all its task files, scores example by
example with its model class around transformers' model in fp32 for a sample of
tasks.

TESSERA_EVAL_PROMPTS and TESSERA_EVAL_SCORES: examples of each task (100, 20).
TESSERA_EVAL_TASKS: names of the tasks to score."""
import json
import math
import os
import random
import subprocess
import sys
import tempfile

import torch
import yaml
from composer.models import HuggingFaceModel
from llmfoundry.eval import metrics
from llmfoundry.eval.datasets import in_context_learning_evaluation as datasets
from transformers import AutoModelForCausalLM, AutoTokenizer

CLOSE = 1e-5  # scores of which either may be the lesser


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


def is_whole(path):
    """Copies of the repository have been cut off in the middle of a line."""
    with open(path, 'rb') as file:
        last = file.read().splitlines()[-1]
    try:
        json.loads(last)
        return True
    except ValueError:
        return False


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


class World:
    def __init__(self, model, tessera, folder):
        self.tokenizer = AutoTokenizer.from_pretrained(model)
        self.path, self.tessera, self.folder = model, tessera, folder
        self.model, self.read = None, 0
        # one that no prompt has, so that nothing of it is masked
        self.pad = self.tokenizer.convert_tokens_to_ids('<|endoftext|>')
        self.max_seq_len = 4096

    def unread(self):
        """A new name: the package keeps what it read by the name."""
        self.read += 1
        return os.path.join(self.folder, '%d.jsonl' % self.read)

    def parts_of(self, task):
        """(category, file)"""
        if not task.get('has_categories'):
            return [(None, task['file'])]
        return list(datasets.partition_dataset_by_category(
            task['file'], self.unread(), {}, {}).items())

    def dataset(self, task, path):
        data = getattr(datasets, KINDS[task['icl_task_type']][0])
        return data(dataset_uri=path, tokenizer=self.tokenizer,
                    max_seq_len=self.max_seq_len, pad_tok_id=self.pad,
                    num_fewshot=task['shots'], destination_path=self.unread(),
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
        for category, path in self.parts_of(task):
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
    def judge(self, data, example, metric):
        """Of one example (right, scores)."""
        batch = data.collate_fn([example])
        if batch['mode'] == 'generate':
            self.cut(batch, int((batch['input_ids'][0] != self.pad).nonzero()[0]),
                     None)
            text = self.model.eval_forward(batch)
            result = self.model.update_metric(batch, text, metric)
            return result['result'][0], result['cleaned_output'][0]
        spans = batch['continuation_indices']
        self.cut(batch, 0, max(int(span[-1]) + 1 for span in spans))
        with torch.no_grad():
            logits = self.model.eval_forward(batch)
        scores = []
        for row, span in enumerate(spans):
            at = logits[row].index_select(0, span - 1)
            to = self.model.labels[row].index_select(0, span - 1)
            top = at.topk(2).values
            scores.append((
                float(torch.exp(torch.nn.functional.cross_entropy(at, to))),
                float((top[:, 0] - top[:, 1]).min())))
        return (self.model.update_metric(batch, logits, metric)['result'][0],
                scores)

    @staticmethod
    def cut(batch, start, end):
        """Away with the padding, which is most of it."""
        for key in ('input_ids', 'labels', 'attention_mask'):
            if torch.is_tensor(batch.get(key)):
                batch[key] = batch[key][:, start:end]

    def same_scores(self, task, limit):
        lines = self.ours(task, limit, '--threads', '1', '--batch', '4')
        kind = task['icl_task_type']
        metric = getattr(metrics, KINDS[kind][1])()
        if self.model is None:
            self.model = HuggingFaceModel(
                AutoModelForCausalLM.from_pretrained(
                    self.path, dtype=torch.float32),
                self.tokenizer).eval()
        differ, right, count, far = [], 0, 0, 0.0
        for category, path in self.parts_of(task):
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
        world = World(model, tessera, folder)
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
            if not is_whole(task['file']):
                print('ok %d - %s # SKIP the copy of its file is cut off'
                      % (point, name), flush=True)
                continue
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
