"""Semantic labelling: tell each word's part of speech, by a bidirectional LSTM or a transformer, with a CRF or without.

    python examples/tag_words.py                                   # sentences of a small grammar whose truth is known
    mpiexec -n 2 python examples/tag_words.py --data en_pud-ud-test.conllu --last 200
    python examples/tag_words.py --model transformer --crf --say "The quick red fox jumps over the lazy brown dog"

Exit code: 0 if the accuracy on held-out sentences is reached and all ranks agree, 1 if not, 2 for bad input.
"""

import sys

import numpy as np

from minigrad import data, dist, nn, optim
from minigrad.train import fit, parser


def main():
    comm = dist.init()
    p = parser(comm, __doc__)
    p.add_argument("--data", default="grammar", metavar="grammar|PATH", help="PATH: a treebank in CoNLL-U")
    p.add_argument("--sentences", type=int, default=600, help="how many the grammar makes")
    p.add_argument("--last", type=int, metavar="N", help="hold out the last N sentences (a fifth, unless given)")
    p.add_argument("--model", choices=("lstm", "transformer"), default="lstm")
    p.add_argument("--crf", action="store_true")
    p.add_argument("--hidden", type=int, default=96)
    p.add_argument("--epochs", type=int, default=12)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--rate", type=float, default=3e-3)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--require", type=float, metavar="A", help="accuracy to be reached (0.99 on the grammar)")
    p.add_argument("--history", metavar="PATH", help="write the loss curve as .csv, .jsonl or .png")
    p.add_argument("--say", default="The quick red fox jumps over the lazy brown dog", metavar="TEXT", help="tag this sentence")
    p.add_argument("--quiet", action="store_true")
    args = p.parse_args()
    try:
        return run(args, comm)
    except (ValueError, OSError, FloatingPointError) as error:
        dist.stop(comm, f"tag_words: {error}")


def run(args, comm):
    sentences = data.grammar(args.sentences, seed=args.seed) if args.data == "grammar" else data.read_conllu(args.data)
    held = args.last if args.last is not None else len(sentences) // 5
    if not 0 < held < len(sentences):
        raise data.DataError(f"--last is {held}; expected 1 to {len(sentences) - 1}, there are {len(sentences)} sentences")
    training, unseen = sentences[:-held], sentences[-held:]
    features = data.WordFeatures(training)
    tags = data.Vocabulary(tag for s in training for _, tag in s)

    def loader(part, shuffle=True):
        x, lengths = data.pad([features.encode([word for word, _ in s]) for s in part])
        y, _ = data.pad([np.array(tags.encode((tag for _, tag in s), known=True)) for s in part])
        settings = {"batch": args.batch, "seed": args.seed, "rank": comm.rank, "size": comm.size, "shuffle": shuffle}
        return data.Loader(x, lengths, y, **settings)

    rng = np.random.default_rng(args.seed)
    model = nn.Tagger(features.sizes, len(tags), rng=rng, kind=args.model, hidden=args.hidden, crf=args.crf, seed=args.seed)
    batches, tests = loader(training), loader(unseen, shuffle=False)
    steps = args.epochs * batches.steps
    optimizer = optim.AdamW(model.parameters(), lr=optim.warm_up(optim.cosine(args.rate, steps), max(steps // 20, 1)))
    history = fit(
        model, nn.Tagger.loss, optimizer, batches, args.epochs, comm=comm, validation=tests, max_norm=1.0,
        metrics={"accuracy": hits}, quiet=args.quiet,
    )  # fmt: skip

    differ = dist.differences(model, comm)
    if comm.rank:
        return 0
    if args.history:
        history.save(args.history)
    model.eval()
    confusion(model, tests, tags)
    accuracy = history["accuracy"][-1]
    needed = args.require if args.require is not None else 0.99 if args.data == "grammar" else 0.0
    words = sum(len(s) for s in unseen)
    name = f"{args.model}{' with CRF' if args.crf else ''}"
    print(f"{name}, {comm.size} rank(s): {accuracy:.4f} of {words} words (needed: {needed})")
    if args.say.split():
        words = args.say.split()
        found = model.tag(features.encode(words)[None], np.array([len(words)]))[0]
        print(" ".join(f"{word}/{tag}" for word, tag in zip(words, tags.decode(found))))
    print("parameters identical on all ranks" if not differ else f"RANKS DIFFER: {'; '.join(differ)}")
    return 0 if accuracy >= needed and not differ else 1


def hits(model, x, lengths, y):
    """Return how many words are tagged correctly, and how many there are."""
    found = model.tag(x, lengths)
    real = found >= 0
    return float(np.sum((found == y[:, : found.shape[1]]) & real)), float(np.sum(real))


def confusion(model, tests, tags):
    """Print each tag's accuracy and what it was most often taken for."""
    table = np.zeros((len(tags), len(tags)), int)
    x, lengths, y = tests.arrays
    found = model.tag(x, lengths)
    real = found >= 0
    np.add.at(table, (y[:, : found.shape[1]][real], found[real]), 1)
    print(f"{'tag':10s}{'words':>7s}{'right':>8s}  taken for")
    for i in np.argsort(-table.sum(axis=1)):
        if table[i].sum():
            wrong = [f"{tags.tokens[j]} {table[i, j]}" for j in np.argsort(-table[i]) if j != i and table[i, j]][:3]
            print(f"{tags.tokens[i]:10s}{table[i].sum():7d}{table[i, i] / table[i].sum():8.1%}  {', '.join(wrong)}")


if __name__ == "__main__":
    sys.exit(main())
