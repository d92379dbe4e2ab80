#!/usr/bin/env python3
"""A model with another model's outputs at several times the cost: each layer is followed by layers whose attention and
feed-forward outputs are multiplied by zero. It serves to measure a draft model's gain without a larger model of the
same vocabulary: layer times are real, and the agreement of the two models is that of the weights.

    bench/speculation/deepen.py MODEL.gguf OUT.gguf --times 8     the model that is served
    bench/speculation/deepen.py MODEL.gguf OUT.gguf --requantize Q4_0   a draft model that sometimes errs

Needs the packages of tools/requirements.txt.
"""

import argparse

import gguf
import numpy as np

OUTPUTS = ("attn_output.weight", "ffn_down.weight")


def copy_fields(reader, writer, layers):
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        if name.endswith(".block_count"):
            writer.add_uint32(name, layers)
            continue
        kind = field.types[0]
        writer.add_key_value(
            name, field.contents(), kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("output")
    parser.add_argument("--times", type=int, default=1, help="output layers per input layer")
    parser.add_argument("--requantize", choices=["Q4_0", "Q5_0", "Q8_0"], help="format of the layers' matrices")
    args = parser.parse_args()
    reader = gguf.GGUFReader(args.model)
    arch = reader.fields["general.architecture"].contents()
    layers = 1 + max(int(t.name.split(".")[1]) for t in reader.tensors if t.name.startswith("blk."))
    writer = gguf.GGUFWriter(args.output, arch)
    copy_fields(reader, writer, layers * args.times)
    for tensor in reader.tensors:
        data, kind = tensor.data, tensor.tensor_type
        if not tensor.name.startswith("blk."):
            writer.add_tensor(tensor.name, data, raw_dtype=kind)
            continue
        _, layer, part = tensor.name.split(".", 2)
        if args.requantize and data.ndim == 2:
            kind = gguf.GGMLQuantizationType[args.requantize]
            data = gguf.quants.quantize(gguf.quants.dequantize(data, tensor.tensor_type), kind)
        for copy in range(args.times):
            zero = copy > 0 and part in OUTPUTS  # zero bits are the value zero in every format
            writer.add_tensor(
                f"blk.{int(layer) * args.times + copy}.{part}", np.zeros_like(data) if zero else data, raw_dtype=kind
            )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file(progress=True)
    writer.close()


if __name__ == "__main__":
    main()
