// SPDX-License-Identifier: Apache-2.0
#include "devices/host/object_loader.h"

#include <llvm/ExecutionEngine/Orc/Core.h>
#include <llvm/ExecutionEngine/Orc/ExecutorProcessControl.h>
#include <llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h>
#include <llvm/ExecutionEngine/Orc/Shared/ExecutorAddress.h>
#include <llvm/Support/MemoryBuffer.h>

#include <atomic>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "devices/host/kernel_symbols.h"

namespace kvr::host {
namespace {

namespace orc = llvm::orc;

absl::Status LoadError(const std::string& what) {
  return Error(absl::StatusCode::kInternal, absl::StrCat("cannot load host object: ", what),
               "compile the variant again (remove its cache entry)");
}

}  // namespace

struct ObjectLoader::Impl {
  std::unique_ptr<orc::ExecutionSession> session;
  std::unique_ptr<orc::ObjectLinkingLayer> layer;
  orc::JITDylib* runtime = nullptr;
  std::atomic<int64_t> loaded{0};
  std::mutex mutex;  // of messages
  std::string messages;

  ~Impl() {
    if (session != nullptr) llvm::consumeError(session->endSession());
  }

  // What failed, with what the session reported beside it.
  std::string Take(llvm::Error error) {
    std::string what = llvm::toString(std::move(error));
    std::lock_guard lock(mutex);
    if (!messages.empty()) absl::StrAppend(&what, "; ", std::exchange(messages, {}));
    return what;
  }
};

namespace {

class OrcObject : public LoadedObject {
 public:
  OrcObject(orc::ExecutionSession& session, orc::JITDylib& dylib)
      : session_(session), dylib_(dylib) {}
  ~OrcObject() override { llvm::consumeError(session_.removeJITDylib(dylib_)); }

 private:
  orc::ExecutionSession& session_;
  orc::JITDylib& dylib_;
};

}  // namespace

ObjectLoader::ObjectLoader() : impl_(std::make_unique<Impl>()) {}
ObjectLoader::~ObjectLoader() = default;

absl::StatusOr<std::unique_ptr<ObjectLoader>> ObjectLoader::Create() {
  std::unique_ptr<ObjectLoader> loader(new ObjectLoader);
  Impl* impl = loader->impl_.get();
  auto control = orc::SelfExecutorProcessControl::Create();
  if (!control) return LoadError(llvm::toString(control.takeError()));
  impl->session = std::make_unique<orc::ExecutionSession>(std::move(*control));
  impl->session->setErrorReporter([impl](llvm::Error error) {
    std::lock_guard lock(impl->mutex);
    absl::StrAppend(&impl->messages, impl->messages.empty() ? "" : "; ",
                    llvm::toString(std::move(error)));
  });
  impl->layer = std::make_unique<orc::ObjectLinkingLayer>(
      *impl->session, impl->session->getExecutorProcessControl().getMemMgr());
  impl->runtime = &impl->session->createBareJITDylib("kvr_runtime");
  orc::SymbolMap symbols;
  for (const KernelSymbol& symbol : KernelSymbols()) {
    symbols[impl->session->intern(symbol.name)] = {orc::ExecutorAddr::fromPtr(symbol.address),
                                                   llvm::JITSymbolFlags::Exported};
  }
  if (auto error = impl->runtime->define(orc::absoluteSymbols(std::move(symbols)))) {
    return LoadError(llvm::toString(std::move(error)));
  }
  return loader;
}

absl::StatusOr<std::unique_ptr<LoadedObject>> ObjectLoader::Load(
    std::string_view bytes, const std::vector<std::string>& symbols,
    std::vector<void*>* addresses) {
  const std::string name = absl::StrCat("kvr_object_", impl_->loaded.fetch_add(1));
  orc::JITDylib& dylib = impl_->session->createBareJITDylib(name);
  auto object = std::make_unique<OrcObject>(*impl_->session, dylib);
  dylib.addToLinkOrder(*impl_->runtime);
  // A copy: JITLink wants it aligned, and may keep it.
  auto buffer =
      llvm::MemoryBuffer::getMemBufferCopy(llvm::StringRef(bytes.data(), bytes.size()), name);
  if (auto error = impl_->layer->add(dylib, std::move(buffer))) {
    return LoadError(impl_->Take(std::move(error)));
  }
  orc::SymbolLookupSet wanted;
  for (const std::string& symbol : symbols) wanted.add(impl_->session->intern(symbol));
  wanted.sortByName();
  wanted.removeDuplicates();  // several entries may name one kernel; ORC crashes on doubles
  auto found = impl_->session->lookup(
      {{&dylib, orc::JITDylibLookupFlags::MatchExportedSymbolsOnly}}, std::move(wanted));
  if (!found) return LoadError(impl_->Take(found.takeError()));
  addresses->clear();
  for (const std::string& symbol : symbols) {
    addresses->push_back((*found)[impl_->session->intern(symbol)].getAddress().toPtr<void*>());
  }
  return object;
}

}  // namespace kvr::host
