# SPDX-License-Identifier: MIT
#
# fibers.rb - Ruby's fibers, threads, exceptions and throws. Reads how many
# rounds; prints sums.
def half(rounds)
  3.times.map do |t|
    Thread.new do
      total = 0
      rounds.times do |r|
        f = Fiber.new { 12.times { |i| Fiber.yield(i * r + t) }; :end }
        while (v = f.resume) != :end
          begin
            raise ArgumentError, v.to_s if v % 7 == 3
            total += v
          rescue ArgumentError => e
            total -= e.message.to_i
          end
        end
        total += catch(:out) { [1, 2, 3].each { |x| throw :out, x if x == r % 4 } ; 0 }
        total += (1..30).map { |x| x.to_s(3).reverse }.sort.join.size
      end
      total
    end
  end.map(&:value)
end

rounds = gets.to_i
first = half(rounds)
rest = $stdin.read.size
puts "#{first.join(' ')} #{rest} #{half(rounds).join(' ')}"
