// gRPC's start registers xDS (service meshes, which Divvy does not use) by this function. Defined
// here, it keeps xDS out of a static executable, which is 4 MB smaller. gRPC's own build option for
// that is this same empty function (grpc_plugin_registry_noextra.cc).
namespace grpc_core {

class CoreConfiguration {
 public:
  class Builder;
};

void RegisterExtraFilters(CoreConfiguration::Builder*) {}

}  // namespace grpc_core
