#include "router/rpc/api_resolver.h"

#include <unordered_map>

#include "ateapi/ateapi.grpc.pb.h"
#include "base/log.h"
#include "base/uuid.h"
#include "router/routes/route_from_api.h"
#include "router/rpc/calls.h"
#include "torpor/v1/node.grpc.pb.h"
#include "torpor/v1/ops.grpc.pb.h"

namespace torpor::router {
namespace {

// The wake itself may take this long after the wait for capacity.
constexpr Duration kResumeTime = std::chrono::minutes(2);
constexpr Duration kReadTime = std::chrono::seconds(10);
constexpr Duration kReportTime = std::chrono::seconds(5);
// Templates never change, but one can be deleted and made again under the same name.
constexpr Duration kTemplateTtl = std::chrono::seconds(60);
constexpr size_t kTemplatesMax = 10'000;

class ApiResolver : public ActorResolver {
 public:
  ApiResolver(std::shared_ptr<grpc::Channel> api, Clock* clock)
      : clock_(clock),
        control_(ateapi::Control::NewStub(api)),
        ops_(torpor::v1::Ops::NewStub(api)) {
    // Connects now, so that the first request does not wait for it.
    api->GetState(/*try_to_connect=*/true);
  }

  void Resume(const ActorKey& key, Duration wait_for_capacity, const std::string& traceparent,
              std::function<void(StatusOr<Answer>)> done) override {
    ateapi::ResumeActorRequest request;
    *request.mutable_actor() = RefOf(key);
    if (wait_for_capacity > Duration::zero()) {
      *request.mutable_wait_for_capacity() = ToProto(wait_for_capacity);
    }
    request.set_require_current(true);
    calls_.Run<ateapi::ResumeActorRequest, ateapi::ResumeActorResponse>(
        std::move(request), wait_for_capacity + kResumeTime,
        [this, traceparent](auto* c, auto* rq, auto* rs, auto cb) {
          if (!traceparent.empty()) c->AddMetadata("traceparent", traceparent);
          control_->async()->ResumeActor(c, rq, rs, std::move(cb));
        },
        [this, done](StatusOr<ateapi::ResumeActorResponse> response) {
          if (!response.ok()) return done(response.status());
          ateapi::ObjectRef ref = response->actor().actor_template();
          WithTemplate(ref, [this, response = *std::move(response),
                             done](const StatusOr<TemplateHttp>& http) {
            if (!http.ok()) return done(http.status());
            Finish(response, *http, done);
          });
        });
  }

  void Progress(const ActorKey& key,
                std::function<void(StatusOr<std::optional<WakeProgress>>)> done) override {
    torpor::v1::ExplainActorRequest request;
    *request.mutable_actor() = RefOf(key);
    Explain(std::move(request), [this, done](StatusOr<torpor::v1::ExplainActorResponse> response) {
      if (!response.ok()) return done(response.status());
      std::optional<WakeProgress> progress = ProgressOf(*response);
      if (!progress || !progress->cold) return done(std::move(progress));
      // The first request for an actor waits without knowing its template.
      WithTemplate(response->actor().actor_template(),
                   [progress = *std::move(progress), done](const StatusOr<TemplateHttp>& http) {
                     if (!http.ok()) return done(http.status());
                     WakeProgress known = progress;
                     known.has_own_budget = http->http.park_budget.has_value();
                     done(std::optional<WakeProgress>(std::move(known)));
                   });
    });
  }

  void Phases(const ActorKey& key, const std::string& op_id,
              std::function<void(StatusOr<std::vector<torpor::v1::Phase>>)> done) override {
    torpor::v1::ExplainActorRequest request;
    *request.mutable_actor() = RefOf(key);
    request.set_op_id(op_id);
    Explain(std::move(request), [done](StatusOr<torpor::v1::ExplainActorResponse> response) {
      if (!response.ok()) return done(response.status());
      std::vector<torpor::v1::Phase> phases;
      if (response->reports_size() > 0) {
        const auto& all = response->reports(0).phases();
        phases.assign(all.begin(), all.end());
      }
      done(std::move(phases));
    });
  }

 private:
  struct CachedTemplate {
    TemplateHttp http;
    MonotonicTime expires;
  };

  static ateapi::ObjectRef RefOf(const ActorKey& key) {
    ateapi::ObjectRef ref;
    ref.set_atespace(key.atespace);
    ref.set_name(key.actor);
    return ref;
  }

  void Explain(torpor::v1::ExplainActorRequest request,
               std::function<void(StatusOr<torpor::v1::ExplainActorResponse>)> done) {
    calls_.Run<torpor::v1::ExplainActorRequest, torpor::v1::ExplainActorResponse>(
        std::move(request), kReadTime,
        [this](auto* c, auto* rq, auto* rs, auto cb) {
          ops_->async()->ExplainActor(c, rq, rs, std::move(cb));
        },
        std::move(done));
  }

  void Finish(const ateapi::ResumeActorResponse& response, const TemplateHttp& http,
              const std::function<void(StatusOr<Answer>)>& done) {
    StatusOr<Route> route = RouteOf(response, http);
    if (!route.ok()) return done(route.status());
    Answer answer;
    answer.woke = response.resumed();
    answer.op_id = response.op_id();
    if (answer.woke) route->woke_at = clock_->Now();
    answer.route = std::make_shared<Route>(*std::move(route));
    done(std::move(answer));
  }

  void WithTemplate(const ateapi::ObjectRef& ref,
                    std::function<void(const StatusOr<TemplateHttp>&)> done) EXCLUDES(mu_) {
    std::string name = ref.atespace() + "/" + ref.name();
    if (std::optional<TemplateHttp> http = Recall(name)) return done(*std::move(http));
    ateapi::GetActorTemplateRequest request;
    *request.mutable_actor_template() = ref;
    calls_.Run<ateapi::GetActorTemplateRequest, ateapi::ActorTemplate>(
        std::move(request), kReadTime,
        [this](auto* c, auto* rq, auto* rs, auto cb) {
          control_->async()->GetActorTemplate(c, rq, rs, std::move(cb));
        },
        [this, name, done](const StatusOr<ateapi::ActorTemplate>& t) {
          if (!t.ok() && t.status().code() != Code::kNotFound) return done(t.status());
          // An actor keeps running when its template is gone.
          TemplateHttp http = t.ok() ? HttpOf(*t) : TemplateHttp();
          if (t.ok()) Remember(name, http);
          done(std::move(http));
        });
  }

  std::optional<TemplateHttp> Recall(const std::string& name) EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    auto it = templates_.find(name);
    if (it == templates_.end() || clock_->Now() >= it->second.expires) return std::nullopt;
    return it->second.http;
  }

  void Remember(const std::string& name, const TemplateHttp& http) EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    if (templates_.size() >= kTemplatesMax) templates_.clear();
    templates_[name] = CachedTemplate{http, clock_->Now() + kTemplateTtl};
  }

  Clock* const clock_;
  const std::unique_ptr<ateapi::Control::Stub> control_;
  const std::unique_ptr<torpor::v1::Ops::Stub> ops_;
  Mutex mu_;
  std::unordered_map<std::string, CachedTemplate> templates_ GUARDED_BY(mu_);
  Calls calls_;  // Last: its destructor waits for callbacks that use the rest.
};

class GrpcActivityReporter : public ActivityReporter {
 public:
  explicit GrpcActivityReporter(std::shared_ptr<grpc::Channel> registry)
      : stub_(torpor::v1::RouterSupport::NewStub(registry)) {}

  void Report(const torpor::v1::ReportActivityRequest& request) override EXCLUDES(mu_) {
    torpor::v1::ReportActivityRequest batch;
    batch.set_router_id(request.router_id());
    {
      MutexLock lock(&mu_);
      for (const auto& activity : request.activities()) {
        waiting_[activity.actor_uid()] = activity;
      }
      if (sending_) return;
      for (auto& [uid, activity] : waiting_) *batch.add_activities() = std::move(activity);
      waiting_.clear();
      sending_ = true;
    }
    Send(std::move(batch));
  }

  void WishIdle(const std::string& uid, int64_t generation, bool durable) override {
    torpor::v1::IdleWish wish;
    wish.set_event_id(IdSource::Real()->NewUuid());
    wish.set_actor_uid(uid);
    wish.set_generation(generation);
    wish.set_verb(durable ? torpor::v1::VERB_SUSPEND : torpor::v1::VERB_PAUSE);
    calls_.Run<torpor::v1::IdleWish, torpor::v1::ReportActorResponse>(
        std::move(wish), kReadTime,
        [this](auto* c, auto* rq, auto* rs, auto cb) {
          stub_->async()->WishIdle(c, rq, rs, std::move(cb));
        },
        [uid](const auto& response) { LogWish(uid, "sleep", response.status()); });
  }

  void WishAwake(const std::string& uid, int64_t generation, Duration duration) override {
    torpor::v1::AwakeWish wish;
    wish.set_event_id(IdSource::Real()->NewUuid());
    wish.set_actor_uid(uid);
    wish.set_generation(generation);
    *wish.mutable_duration() = ToProto(duration);
    calls_.Run<torpor::v1::AwakeWish, torpor::v1::ReportActorResponse>(
        std::move(wish), kReadTime,
        [this](auto* c, auto* rq, auto* rs, auto cb) {
          stub_->async()->WishAwake(c, rq, rs, std::move(cb));
        },
        [uid](const auto& response) { LogWish(uid, "stay awake", response.status()); });
  }

 private:
  static void LogWish(const std::string& uid, std::string_view what, const Status& status) {
    if (status.ok()) return;
    LogWarning("an actor's wish was not heard", {{"actor", uid},
                                                 {"wish", std::string(what)},
                                                 {"reason", ReasonOf(status)},
                                                 {"error", std::string(status.message())}});
  }

  void Send(torpor::v1::ReportActivityRequest batch) EXCLUDES(mu_) {
    calls_.Run<torpor::v1::ReportActivityRequest, torpor::v1::ReportActivityResponse>(
        batch, kReportTime,
        [this](auto* c, auto* rq, auto* rs, auto cb) {
          stub_->async()->ReportActivity(c, rq, rs, std::move(cb));
        },
        [this, batch](const StatusOr<torpor::v1::ReportActivityResponse>& response) {
          MutexLock lock(&mu_);
          sending_ = false;
          if (response.ok()) return;
          // Told with the next report, unless there is something newer by now.
          for (const auto& activity : batch.activities()) {
            waiting_.try_emplace(activity.actor_uid(), activity);
          }
        });
  }

  const std::unique_ptr<torpor::v1::RouterSupport::Stub> stub_;
  Mutex mu_;
  bool sending_ GUARDED_BY(mu_) = false;
  std::unordered_map<std::string, torpor::v1::Activity> waiting_ GUARDED_BY(mu_);
  Calls calls_;
};

}  // namespace

std::unique_ptr<ActorResolver> MakeApiResolver(std::shared_ptr<grpc::Channel> api, Clock* clock) {
  return std::make_unique<ApiResolver>(std::move(api), clock);
}

std::unique_ptr<ActivityReporter> MakeActivityReporter(std::shared_ptr<grpc::Channel> registry) {
  return std::make_unique<GrpcActivityReporter>(std::move(registry));
}

}  // namespace torpor::router
