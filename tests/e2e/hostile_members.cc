#include "tests/e2e/hostile_members.h"

#include "absl/strings/str_cat.h"
#include "wire/testing/conversion.h"

namespace divvy {
namespace {

// Whether a random or changed registration is one that the member may make for itself.
bool IsOfItself(const std::string& role, const std::string& message) {
  v1::RegisterRequest request;
  const bool is_worker = role == "worker";
  return request.ParseFromString(message) && request.job() == (is_worker ? v1::WORKER : v1::PS) &&
         request.index() == (is_worker ? HostileJob::kLiar.index : 0);
}

}  // namespace

std::vector<HostileAttack> Members::Attacks() {
  const auto by = [this](void (Members::*run)(HostileKind&, int64_t)) {
    return [this, run](HostileKind& kind, int64_t tries) { (this->*run)(kind, tries); };
  };
  return {
      {"member: calls of the wrong role", 400, by(&Members::WrongRoles), 2},
      {"member: garbage to every call", 400, by(&Members::Garbage), 3},
      {"member: requests of another job", 400, by(&Members::OfAnotherJob), 3},
      {"member: requests changed", 400, by(&Members::Changed), 3},
      {"member: requests cut short", 200, by(&Members::CutShort), 2},
      {"member: messages of 17 MiB", 16, by(&Members::TooLarge), 0.2},
      {"member: compressed 64 MiB of zeros", 8, by(&Members::Bombs), 0.2},
      {"member: headers of 9 to 144 KiB", 50, by(&Members::LargeHeaders)},
      {"member: 1,000 calls at once", 2000, by(&Members::Floods), 0.5},
  };
}

Members::Portion Members::AnyPortion() {
  static const auto* const kRoles = new std::vector<std::string>{"chief", "ps", "worker", "admin"};
  Portion portion;
  portion.task = job_.Any();
  portion.role = (*kRoles)[random_.Below(kRoles->size())];
  portion.member =
      portion.role == "worker" ? HostileJob::kLiarsCertificate : absl::StrCat(portion.role, "-0");
  portion.method = &Methods()[random_.Below(Methods().size())];
  return portion;
}

void Members::MustBeRefused(HostileKind& kind, const Portion& portion, int count,
                            const MakeMessage& make, RawCalls::Options options) {
  std::vector<std::string> messages;
  for (int i = 0; i < count; ++i) messages.push_back(make());
  RawCalls calls = job_.As(portion.member, portion.task);
  const Method& method = *portion.method;
  const std::string what =
      absl::StrCat(portion.member, " -> ", ToString(portion.task), " ", method.path);
  calls.CallEach(
      method.path, messages, options,
      [&](size_t i, const grpc::Status& status, const std::string& reply) {
        if (status.ok() && method.path == kRegister && IsOfItself(portion.role, messages[i]))
          return kind.Note("registered: as itself, it may");
        const bool refused = !status.ok() || method.path == kSteps ||
                             (method.IsDataStream() && !StatusOfReply(reply).ok());
        kind.Note(status.ok() && refused ? "refused in the stream" : CodeName(status));
        if (status.error_code() == grpc::DEADLINE_EXCEEDED) kind.Hang(what);
        if (!refused) kind.WrongAccept(what);
      });
}

void Members::AllowedCalls(HostileKind& kind, int64_t tries,
                           const std::function<std::string(const Method&)>& make) {
  while (kind.tries < tries) {
    const Portion portion = AnyPortion();
    const bool counts = portion.method->MayBeCalledBy(portion.role) &&
                        portion.method->IsServedBy(portion.task) && portion.role != "admin";
    if (!counts || portion.method->path == kGetStatus) continue;
    MustBeRefused(kind, portion, 20, [&] { return make(*portion.method); });
  }
}

// ---- the content of requests --------------------------------------------------------------------

void Members::WrongRoles(HostileKind& kind, int64_t tries) {
  while (kind.tries < tries) {
    const Portion portion = AnyPortion();
    if (!portion.method->IsServedBy(portion.task) || portion.method->MayBeCalledBy(portion.role))
      continue;
    MustBeRefused(kind, portion, 20, [&] { return portion.method->valid(random_.Next()); });
  }
  for (const auto& [outcome, count] : kind.outcomes) {
    if (outcome != "PERMISSION_DENIED")
      kind.WrongAccept(absl::StrCat(count, " calls of the wrong role came to ", outcome));
  }
}

void Members::Garbage(HostileKind& kind, int64_t tries) {
  while (kind.tries < tries)
    MustBeRefused(kind, AnyPortion(), 20, [&] { return NoMessage(random_, random_.Below(300)); });
}

void Members::OfAnotherJob(HostileKind& kind, int64_t tries) {
  AllowedCalls(kind, tries, [this](const Method& method) { return method.valid(random_.Next()); });
}

void Members::Changed(HostileKind& kind, int64_t tries) {
  AllowedCalls(kind, tries, [this](const Method& method) {
    return wire::testing::Mutated(method.valid(random_.Next()), random_);
  });
}

void Members::CutShort(HostileKind& kind, int64_t tries) {
  AllowedCalls(kind, tries, [this](const Method& method) {
    const std::string whole = method.valid(random_.Next());
    return whole.substr(0, random_.Below(whole.size() + 1));
  });
}

// ---- the size and number of requests ------------------------------------------------------------

void Members::TooLarge(HostileKind& kind, int64_t tries) {
  const std::string large(17 << 20, 'x');
  RawCalls::Options options;
  options.at_once = 2;
  const auto make = [&] { return large; };
  while (kind.tries < tries) MustBeRefused(kind, AnyPortion(), 2, make, options);
}

void Members::Bombs(HostileKind& kind, int64_t tries) {
  const std::string zeros(64 << 20, 0);
  RawCalls::Options options;
  options.gzip = true;
  options.at_once = 1;
  const auto make = [&] { return zeros; };
  while (kind.tries < tries) MustBeRefused(kind, AnyPortion(), 1, make, options);
}

void Members::LargeHeaders(HostileKind& kind, int64_t tries) {
  const auto make = [&] { return NoMessage(random_, 10); };
  while (kind.tries < tries) {
    RawCalls::Options options;
    options.large_header = std::string(size_t{9 << 10} << random_.Below(5), 'h');
    MustBeRefused(kind, AnyPortion(), 5, make, options);
  }
}

void Members::Floods(HostileKind& kind, int64_t tries) {
  RawCalls::Options options;
  options.at_once = 1000;
  const auto make = [&] { return NoMessage(random_, 100); };
  while (kind.tries < tries) MustBeRefused(kind, AnyPortion(), 1000, make, options);
}

}  // namespace divvy
