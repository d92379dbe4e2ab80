#include "cost/coefficient_file.h"

namespace tactus::cost {
namespace {

constexpr int64_t kVersion = 2;  // version 1 was text, one record per line

AttentionCurve ReadHeads(JsonRecord& record) {
  AttentionCurve c;
  c.q_heads = record.Number("q_heads", 1, 1e5);
  c.kv_heads = record.Number("kv_heads", 1, 1e5);
  c.head_dim = record.Number("head_dim", 1, 1e4);
  c.kv_dtype = record.Text("kv_dtype");
  return c;
}

void ReadAttention(JsonRecord& file, const char* table, const char* at, const char* knots,
                   std::vector<AttentionCurve>* curves) {
  file.Each(table, [&](JsonRecord& record) {
    AttentionCurve c = ReadHeads(record);
    c.at = record.Number(at, 0, 1e12);
    c.knots = record.Pairs(knots);
    curves->push_back(std::move(c));
  });
}

void ReadCollective(JsonRecord& file, const char* table, std::vector<CollectiveCurve>* curves) {
  file.Each(table, [&](JsonRecord& record) {
    curves->push_back({static_cast<int32_t>(record.Integer("gpus", 2, 100'000)), record.Pairs("us")});
  });
}

FitError ReadError(JsonRecord& record) {
  FitError e;
  e.op = record.Text("op");
  e.left_out = record.Text("left_out");
  e.median = record.Number("median", 0, 1e6);
  e.p90 = record.Number("p90", 0, 1e6);
  e.rows = record.Integer("rows", 0, int64_t{1} << 40);
  return e;
}

void ReadHead(JsonRecord& file, Coefficients* c) {
  file.Integer("tactus_cost", kVersion, kVersion);
  if (file.Has("device")) c->device = file.Text("device");
  if (file.Has("backend")) c->backend = file.Text("backend");
  if (file.Has("sources")) {
    for (const std::string& source : file.Texts("sources")) c->source += (c->source.empty() ? "" : "; ") + source;
  }
  if (file.Has("floor_us")) c->floor_us = file.Number("floor_us", 0, 1e6);
  file.Each("errors", [&](JsonRecord& record) { c->errors.push_back(ReadError(record)); });
}

void ReadTables(JsonRecord& file, Coefficients* c) {
  file.Each("gemm", [&](JsonRecord& record) {
    GemmCurve g;
    g.dtype = record.Text("dtype");
    g.n = record.Number("n", 1, 1e8);
    g.k = record.Number("k", 1, 1e8);
    g.efficiency = record.Pairs("efficiency");
    c->gemm.push_back(std::move(g));
  });
  file.Each("experts", [&](JsonRecord& record) {
    ExpertsCurve e;
    e.dtype = record.Text("dtype");
    e.hidden = record.Number("hidden", 1, 1e8);
    e.inner = record.Number("inner", 1, 1e8);
    e.chosen = record.Number("chosen", 1, 1e4);
    const double least = c->experts.empty() ? 1 : c->experts.back().touched + 1;
    e.touched = record.Number("touched", least, 1e5);
    e.us = record.Pairs("us");
    c->experts.push_back(std::move(e));
  });
  ReadAttention(file, "prefill", "context", "efficiency", &c->prefill);
  ReadAttention(file, "prefill_alone", "context", "us", &c->prefill_alone);
  ReadAttention(file, "decode", "batch", "efficiency", &c->decode);
  file.Each("elementwise", [&](JsonRecord& record) {
    c->elementwise.push_back(
        {record.Text("op"), record.Number("overhead_us", 0, 1e6), record.Number("efficiency", 1e-4, 1e3)});
  });
  ReadCollective(file, "allreduce", &c->all_reduce);
  ReadCollective(file, "exchange", &c->exchange);
  if (file.Has("sendrecv_us")) c->send_us = file.Pairs("sendrecv_us");
}

}  // namespace

Result<Coefficients> ParseCoefficients(std::string_view text, const std::string& name) {
  Coefficients c;
  TACTUS_RETURN_IF_ERROR(JsonRecord::Read(text, name, [&](JsonRecord& file) {
    ReadHead(file, &c);
    ReadTables(file, &c);
  }));
  return c;
}

Result<std::vector<BesideChunk>> ParseBesideChunk(std::string_view text, const std::string& name) {
  std::vector<BesideChunk> rows;
  TACTUS_RETURN_IF_ERROR(JsonRecord::Read(text, name, [&](JsonRecord& file) {
    if (file.Has("source")) file.Text("source");
    file.Each("errors", [](JsonRecord& record) { ReadError(record); });  // for readers only
    file.Each("beside", [&](JsonRecord& record) {
      BesideChunk row;
      row.fit = record.Text("fit");
      row.factor = ReadHeads(record);
      row.factor.knots = record.Pairs("factor");
      rows.push_back(std::move(row));
    });
  }));
  return rows;
}

}  // namespace tactus::cost
