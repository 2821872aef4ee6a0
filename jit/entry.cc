// SPDX-License-Identifier: Apache-2.0
//
// The cache entry's format, version 2, little-endian:
//
//   binary | metadata | footer
//
// The directory v2 (jit/cache_store.h) holds entries of this version alone: raise both together.
// The binary comes first, so that cuobjdump and readelf read an entry as it is, and so that one
// read and one truncation give the binary without a copy. The footer (kFooterSize bytes):
//
//   magic[8] version:u32 reserved:u32 binary_size:u64 metadata_size:u64 key[32] checksum[16]
//
// The checksum is XXH3-128 over everything before it. It guards against damage, not malice: who
// can write a cache can write a checksum of any kind. BLAKE3 was measured at 10 µs for 64 KB, half
// of the budget of a warm read; this is 4 µs.
#include <llvm/Support/xxhash.h>

#include <cstring>

#include "jit/cache.h"

namespace kvr {
namespace {

constexpr char kMagic[8] = {'K', 'V', 'R', 'E', 'N', 'T', 'R', 'Y'};
constexpr uint32_t kVersion = 2;
constexpr size_t kFooterSize = 80;
constexpr size_t kChecksumSize = 16;

void PutInt(std::string* out, uint64_t value, int size) {
  for (int i = 0; i < size; ++i) *out += static_cast<char>(value >> (8 * i));
}
void PutText(std::string* out, std::string_view text) {
  PutInt(out, text.size(), 8);
  *out += text;
}
void PutHash(std::string* out, const Fingerprint& hash) {
  out->append(reinterpret_cast<const char*>(hash.bytes.data()), hash.bytes.size());
}

// Reads fields off the front; after the first that is not there, everything reads as zero.
class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}
  std::string_view Take(uint64_t size) {
    if (size > rest_.size()) {
      good_ = false;
      rest_ = {};
      return {};
    }
    std::string_view field = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return field;
  }
  uint64_t Int(int size) {
    std::string_view field = Take(static_cast<uint64_t>(size));
    uint64_t value = 0;
    for (size_t i = 0; i < field.size(); ++i)
      value |= uint64_t{static_cast<uint8_t>(field[i])} << (8 * i);
    return value;
  }
  std::string Text() { return std::string(Take(Int(8))); }
  Fingerprint Hash() {
    Fingerprint hash;
    std::string_view field = Take(hash.bytes.size());
    if (field.size() == hash.bytes.size())
      std::memcpy(hash.bytes.data(), field.data(), field.size());
    return hash;
  }
  bool good() const { return good_; }
  bool done() const { return good_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool good_ = true;
};

std::string Checksum(std::string_view covered) {
  llvm::XXH128_hash_t hash = llvm::xxh3_128bits(
      llvm::ArrayRef<uint8_t>(reinterpret_cast<const uint8_t*>(covered.data()), covered.size()));
  std::string out;
  PutInt(&out, hash.low64, 8);
  PutInt(&out, hash.high64, 8);
  return out;
}

std::string EncodeMetadata(const Binary& binary, std::string_view label) {
  std::string out;
  PutText(&out, label);
  PutText(&out, binary.target);
  PutText(&out, binary.compiler);
  PutHash(&out, binary.source);
  PutHash(&out, binary.content);
  PutInt(&out, binary.kernels.size(), 8);
  for (const BinaryKernel& kernel : binary.kernels) {
    PutText(&out, kernel.entry);
    PutText(&out, kernel.symbol);
    const KernelResources& r = kernel.resources;
    for (int64_t value : {int64_t{r.registers}, r.smem_static, r.frame_bytes, r.spill_bytes,
                          int64_t{r.max_threads}})
      PutInt(&out, static_cast<uint64_t>(value), 8);
  }
  return out;
}

bool DecodeMetadata(std::string_view metadata, Binary* binary, std::string* label) {
  Reader reader(metadata);
  std::string text = reader.Text();
  if (label != nullptr) *label = std::move(text);
  binary->target = reader.Text();
  binary->compiler = reader.Text();
  binary->source = reader.Hash();
  binary->content = reader.Hash();
  uint64_t count = reader.Int(8);
  for (uint64_t i = 0; i < count && reader.good(); ++i) {
    BinaryKernel kernel;
    kernel.entry = reader.Text();
    kernel.symbol = reader.Text();
    KernelResources& r = kernel.resources;
    r.registers = static_cast<int>(reader.Int(8));
    r.smem_static = static_cast<int64_t>(reader.Int(8));
    r.frame_bytes = static_cast<int64_t>(reader.Int(8));
    r.spill_bytes = static_cast<int64_t>(reader.Int(8));
    r.max_threads = static_cast<int>(reader.Int(8));
    binary->kernels.push_back(std::move(kernel));
  }
  return reader.done();
}

}  // namespace

std::string EncodeEntry(const Binary& binary, std::string_view label) {
  std::string metadata = EncodeMetadata(binary, label);
  std::string out;
  out.reserve(binary.bytes.size() + metadata.size() + kFooterSize);
  out += binary.bytes;
  out += metadata;
  out.append(kMagic, sizeof kMagic);
  PutInt(&out, kVersion, 4);
  PutInt(&out, 0, 4);
  PutInt(&out, binary.bytes.size(), 8);
  PutInt(&out, metadata.size(), 8);
  PutHash(&out, binary.key);
  out += Checksum(out);
  return out;
}

std::shared_ptr<Binary> DecodeEntry(std::string entry, const Fingerprint* key, std::string* label) {
  if (entry.size() < kFooterSize) return nullptr;
  const std::string_view all = entry;
  const size_t body_size = all.size() - kFooterSize;
  Reader footer(all.substr(body_size));
  if (footer.Take(sizeof kMagic) != std::string_view(kMagic, sizeof kMagic)) return nullptr;
  if (footer.Int(4) != kVersion || footer.Int(4) != 0) return nullptr;
  const uint64_t binary_size = footer.Int(8), metadata_size = footer.Int(8);
  const Fingerprint found = footer.Hash();
  if (binary_size > body_size || metadata_size != body_size - binary_size) return nullptr;
  if (key != nullptr && found != *key) return nullptr;
  if (footer.Take(kChecksumSize) != Checksum(all.substr(0, all.size() - kChecksumSize)))
    return nullptr;
  auto binary = std::make_shared<Binary>();
  if (!DecodeMetadata(all.substr(binary_size, metadata_size), binary.get(), label)) return nullptr;
  binary->key = found;
  entry.resize(binary_size);
  binary->bytes = std::move(entry);
  return binary;
}

}  // namespace kvr
