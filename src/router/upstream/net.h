#pragma once
// The Asio types of the data plane: one concrete executor, so that no call is virtual. Only
// included by the files that move bytes.

#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/system/error_code.hpp>

#include <chrono>

namespace torpor::router {

namespace net = boost::asio;
using ErrorCode = boost::system::error_code;
using Executor = net::io_context::executor_type;
using Socket = net::basic_stream_socket<net::generic::stream_protocol, Executor>;
using SteadyTimer =
    net::basic_waitable_timer<std::chrono::steady_clock,
                              net::wait_traits<std::chrono::steady_clock>, Executor>;

}  // namespace torpor::router
